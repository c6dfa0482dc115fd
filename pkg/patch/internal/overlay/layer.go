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
	// job is the replicated job; empty for the JobSet itself, of which only metadata can be patched.
	job string

	// Ours is for an override that carries our mark.
	Ours bool

	// ofJob is for the Job itself and not for its pods.
	ofJob bool

	// Metadata has labels and annotations only.
	Metadata Object
	// podSpec is nil when the override says nothing of it.
	podSpec Object
}

// target is what a layer patches: the JobSet, a Job or the pods of a Job.
type target struct {
	job   string
	ofJob bool
}

// Entries puts the layers into one entry per manager. An error tells of layers that
// no order of whole entries can express.
func Entries(layers []Layer) (entries []*Entry, warnings []string, errs field.ErrorList) {
	managers, errs := precedence(layers)
	byManager := make(map[string]*Entry, len(managers))
	for _, manager := range managers {
		e := &Entry{Manager: manager}
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
		key := target{l.job, l.ofJob}
		last, found := latest[key]
		latest[key] = l
		if !found || last.Manager == l.Manager || order[last.Manager].Has(l.Manager) {
			continue
		}
		if order.reaches(l.Manager, last.Manager) {
			errs = append(errs, field.Invalid(l.Path, l.Manager, fmt.Sprintf(
				"it wins over %s of manager %q, and another override of manager %q has to lose; one entry per manager cannot be both: put the overrides of a manager beside each other, or give this one another manager",
				last.Path, last.Manager, l.Manager)))
			continue
		}
		order[last.Manager].Insert(l.Manager)
	}
	return order.sorted(managers), errs
}

// precedes holds, for each manager, those that must come after it.
type precedes map[string]sets.Set[string]

// reaches reports whether to must come after from, by any way.
func (p precedes) reaches(from, to string) bool {
	seen, next := sets.New(from), []string{from}
	for len(next) > 0 {
		from, next = next[0], next[1:]
		for manager := range p[from] {
			if !seen.Has(manager) {
				seen.Insert(manager)
				next = append(next, manager)
			}
		}
	}
	return seen.Has(to)
}

// sorted takes, again and again, the first manager that need not come after another one.
func (p precedes) sorted(managers []string) []string {
	waitsFor := map[string]int{}
	for _, later := range p {
		for manager := range later {
			waitsFor[manager]++
		}
	}
	rest, ordered := slices.Clone(managers), make([]string, 0, len(managers))
	for len(rest) > 0 {
		at := slices.IndexFunc(rest, func(m string) bool { return waitsFor[m] == 0 })
		for manager := range p[rest[at]] {
			waitsFor[manager]--
		}
		ordered = append(ordered, rest[at])
		rest = slices.Delete(rest, at, at+1)
	}
	return ordered
}
