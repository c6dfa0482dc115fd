// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Layer is what one override says about one replicated job. Layers come in the order
// of their precedence, the strongest last.
type Layer struct {
	Path    *field.Path
	Manager string
	// time is when the override was written, as it was written; empty when that is not known.
	time string
	target
	// Metadata has labels and annotations only.
	Metadata Object
	// podSpec is nil when the override says nothing of it.
	podSpec Object
}

// target is what a layer patches.
type target struct {
	// job is the replicated job; empty for the JobSet itself, of which only metadata can be patched.
	job string
	// ofJob is for the Job itself and not for its pods.
	ofJob bool
}

// Entries puts the layers into one entry per manager. An error tells of layers that
// no order of whole entries can express.
func Entries(layers []Layer) (entries []*Entry, warnings []string, errs field.ErrorList) {
	managers, errs := precedence(layers)
	byManager := make(map[string]*Entry, len(managers))
	for _, manager := range managers {
		e := &Entry{Manager: manager, Spec: Object{}}
		byManager[manager], entries = e, append(entries, e)
	}
	for _, l := range layers {
		warned, err := byManager[l.Manager].add(l)
		warnings = append(warnings, warned...)
		if err != nil {
			errs = append(errs, err)
		}
	}
	return entries, warnings, errs
}

// precedence orders the managers so that those with layers for the same target stand
// as their layers do, and as they first appear otherwise. An error tells of a manager
// that patches a target both before and after another one.
func precedence(layers []Layer) (managers []string, errs field.ErrorList) {
	order := precedes{}
	latest := map[target]Layer{}
	for _, l := range layers {
		if order[l.Manager] == nil {
			managers, order[l.Manager] = append(managers, l.Manager), sets.New[string]()
		}
		last, found := latest[l.target]
		latest[l.target] = l
		if !found || last.Manager == l.Manager || order[last.Manager].Has(l.Manager) {
			continue
		}
		if order[l.Manager].Has(last.Manager) {
			errs = append(errs, field.Invalid(l.Path, l.Manager, fmt.Sprintf(
				"it wins over %s of manager %q, and another override of manager %q has to lose; one entry per manager cannot be both: put the overrides of a manager beside each other, or give this one another manager",
				last.Path, last.Manager, l.Manager)))
			continue
		}
		order.add(last.Manager, l.Manager)
	}
	return order.sorted(managers), errs
}

// precedes holds, for each manager, those that must come after it, by any way.
type precedes map[string]sets.Set[string]

// add has a manager and all behind it come after another one, and after all before that.
func (p precedes) add(before, after string) {
	behind := p[after].Clone().Insert(after)
	for manager, later := range p {
		if manager == before || later.Has(before) {
			p[manager] = later.Union(behind)
		}
	}
}

// sorted takes, again and again, the first manager that need not come after another one.
func (p precedes) sorted(managers []string) []string {
	rest, ordered := slices.Clone(managers), make([]string, 0, len(managers))
	for len(rest) > 0 {
		at := slices.IndexFunc(rest, func(manager string) bool {
			return !slices.ContainsFunc(rest, func(other string) bool { return p[other].Has(manager) })
		})
		ordered, rest = append(ordered, rest[at]), slices.Delete(rest, at, at+1)
	}
	return ordered
}
