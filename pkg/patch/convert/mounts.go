// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch/internal/overlay"
)

// spreadMounts makes room for volumes that a container mounts more than once. To Trainer
// 2.1 and to every merge a mount is its path, but the list in an entry is keyed by the
// volume, so an entry has one mount of each. The others go into entries right behind it,
// of managers with a number: as their paths differ, none wins over another.
func spreadMounts(entries []*overlay.Entry) (spread []*overlay.Entry, warnings []string) {
	taken := sets.New[string]()
	for _, e := range entries {
		taken.Insert(e.Manager)
	}
	for _, e := range entries {
		spread = append(spread, e)
		for rest := takeSecondMounts(e); rest != nil; rest = takeSecondMounts(rest) {
			rest.Manager, rest.Time = numbered(e.Manager, taken), e.Time
			spread = append(spread, rest)
			warnings = append(warnings, fmt.Sprintf(
				"%s: an entry has one mount of a volume in a container: more of them are in an entry of manager %q", patchesPath, rest.Manager))
		}
	}
	return spread, warnings
}

// numbered returns and takes a manager's name that is not taken.
func numbered(manager string, taken sets.Set[string]) string {
	for n := 2; ; n++ {
		name := fmt.Sprintf("%s-%d", manager, n)
		if !taken.Has(name) {
			taken.Insert(name)
			return name
		}
	}
}

// takeSecondMounts takes every mount but the first of each volume out of the entry, into
// one that has nothing else; nil when there are none.
func takeSecondMounts(e *overlay.Entry) *overlay.Entry {
	var taken *overlay.Entry
	for _, job := range e.Jobs() {
		spec, _, _ := unstructured.NestedFieldNoCopy(job, overlay.PodSpec...)
		pod, _ := spec.(overlay.Object)
		for _, list := range []string{"initContainers", "containers"} {
			kept, second := splitContainers(pod[list])
			if len(second) == 0 {
				continue
			}
			pod[list] = kept
			if taken == nil {
				taken = &overlay.Entry{Spec: overlay.Object{}}
			}
			overlay.At(taken.Job(overlay.Text(job["name"])), overlay.PodSpec...)[list] = second
		}
	}
	return taken
}

// splitContainers leaves the list and its containers, which other jobs may share, as they are.
func splitContainers(list any) (kept, second []any) {
	containers, _ := list.([]any)
	kept = slices.Clone(containers)
	for i, c := range containers {
		c, _ := c.(overlay.Object)
		first, rest := splitMounts(c["volumeMounts"])
		if len(rest) == 0 {
			continue
		}
		without := maps.Clone(c)
		without["volumeMounts"] = first
		kept[i] = without
		second = append(second, overlay.Object{"name": c["name"], "volumeMounts": rest})
	}
	return kept, second
}

func splitMounts(list any) (first, rest []any) {
	mounts, _ := list.([]any)
	seen := map[string]bool{}
	for _, m := range mounts {
		fields, _ := m.(overlay.Object)
		name := overlay.Text(fields["name"])
		if seen[name] {
			rest = append(rest, m)
		} else {
			first = append(first, m)
		}
		seen[name] = true
	}
	return first, rest
}
