// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// layer is what one override says about one replicated job. Layers come in the order
// of their precedence, the strongest last.
type layer struct {
	path    *field.Path
	manager string
	// time is when the override was written, as it was written; empty when that is not known.
	time string
	// job is the replicated job; empty for the JobSet itself, of which only metadata can be patched.
	job string

	// ofJob is for the Job itself and not for its pods.
	ofJob bool

	// metadata has labels and annotations only.
	metadata object
	// podSpec is nil when the override says nothing of it.
	podSpec object
}

// target is what a layer patches: the JobSet, a Job or the pods of a Job.
type target struct {
	job   string
	ofJob bool
}

// entriesOf puts the layers into one entry per manager. An error tells of layers that
// no order of whole entries can express.
func entriesOf(layers []layer) (entries []*entry, warnings []string, errs field.ErrorList) {
	managers, errs := precedence(layers)
	byManager := make(map[string]*entry, len(managers))
	for _, manager := range managers {
		e := &entry{Manager: manager}
		byManager[manager], entries = e, append(entries, e)
	}
	for _, l := range layers {
		warned, err := byManager[l.manager].add(l)
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
func precedence(layers []layer) (managers []string, errs field.ErrorList) {
	after := map[string][]string{} // after[m] must come after m.
	latest := map[target]layer{}
	for _, l := range layers {
		if !slices.Contains(managers, l.manager) {
			managers = append(managers, l.manager)
		}
		key := target{l.job, l.ofJob}
		last, found := latest[key]
		latest[key] = l
		if !found || last.manager == l.manager {
			continue
		}
		if reaches(after, l.manager, last.manager) {
			errs = append(errs, field.Invalid(l.path, l.manager, fmt.Sprintf(
				"it wins over %s of manager %q, and another override of manager %q has to lose; one entry per manager cannot be both: put the overrides of a manager beside each other, or give this one another manager",
				last.path, last.manager, l.manager)))
			continue
		}
		after[last.manager] = append(after[last.manager], l.manager)
	}
	return sorted(managers, after), errs
}

// reaches reports whether to must come after from.
func reaches(after map[string][]string, from, to string) bool {
	return slices.ContainsFunc(after[from], func(next string) bool {
		return next == to || reaches(after, next, to)
	})
}

// sorted takes, again and again, the first manager that need not come after another one.
func sorted(managers []string, after map[string][]string) []string {
	rest, ordered := slices.Clone(managers), make([]string, 0, len(managers))
	for len(rest) > 0 {
		at := slices.IndexFunc(rest, func(m string) bool {
			return !slices.ContainsFunc(rest, func(other string) bool { return slices.Contains(after[other], m) })
		})
		ordered = append(ordered, rest[at])
		rest = slices.Delete(rest, at, at+1)
	}
	return ordered
}
