// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/kueue-trainer/kueue-trainer/test/faults/internal/apiproxy"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// written makes a write of a run out of its parts.
func written(verb, resource, subresource, name string) apiproxy.Write {
	return apiproxy.Write{Request: apiproxy.Request{Verb: verb, Resource: resource, Subresource: subresource, Name: name}}
}

func TestRefs(t *testing.T) {
	got := refs([]apiproxy.Write{
		written("create", "workloads.kueue.x-k8s.io", "", "trainjob-low-1a2b3"),
		written("patch", "trainjobs.trainer.kubeflow.org", "", "low"),
		written("patch", "workloads.kueue.x-k8s.io", "status", "trainjob-high-4c5d6"),
		written("patch", "jobs.batch", "", "low-node-0"),
		written("patch", "trainjobs.trainer.kubeflow.org", "", "low"),
		written("update", "localqueues.kueue.x-k8s.io", "status", "queue"),
	})
	want := []writeRef{
		{writeKind{"create", "workloads", low}, 1},
		{writeKind{"patch", "trainjobs", low}, 1},
		{writeKind{"patch", "workloads/status", high}, 1},
		{writeKind{"patch", "jobs", low}, 1},
		{writeKind{"patch", "trainjobs", low}, 2},
	}
	expect.Same(t, "unexpected writes", want, got, cmp.AllowUnexported(writeRef{}, writeKind{}))
}

// somePlans are those that need no cluster.
func somePlans() []plan {
	writes := refs([]apiproxy.Write{
		written("create", "workloads.kueue.x-k8s.io", "", "trainjob-low-1a2b3"),
		written("patch", "workloads.kueue.x-k8s.io", "status", "trainjob-low-1a2b3"),
		written("patch", "trainjobs.trainer.kubeflow.org", "", "low"),
		written("patch", "trainjobs.trainer.kubeflow.org", "", "low"),
	})
	return append(atWrites(writes), atSteps(func(string) bool { return true })...)
}

func names(plans []plan) (names []string) {
	for _, p := range plans {
		names = append(names, p.String())
	}
	return names
}

func families(plans []plan) sets.Set[string] {
	families := sets.New[string]()
	for _, p := range plans {
		families.Insert(p.family)
	}
	return families
}

func TestSampleHasEveryFamilyAndFollowsTheSeed(t *testing.T) {
	plans := somePlans()
	all := families(plans)
	for seed := range uint64(20) {
		expect.Same(t, fmt.Sprintf("seed %d: unexpected families", seed), all, families(sample(plans, len(all), seed)))
	}
	expect.Same(t, "the same seed chooses other plans", names(sample(plans, 12, 5)), names(sample(plans, 12, 5)))
}

// A pattern has alternatives and is matched part by part, as the testing package does.
func TestPatternSelectsOnePlan(t *testing.T) {
	plans := somePlans()
	for _, p := range plans {
		selected := slices.DeleteFunc(names(plans), func(name string) bool {
			return !selects(p.pattern(), "TestFaults/"+strings.ReplaceAll(name, " ", "_"))
		})
		expect.That(t, selects(p.pattern(), "TestFaults/clean/low_and_high,_run_1"), "%s leaves out the clean runs", p.pattern())
		expect.Same(t, p.pattern()+" selects", []string{p.String()}, selected)
	}
}

func selects(pattern, name string) bool {
	parts := strings.Split(name, "/")
	return slices.ContainsFunc(strings.Split(pattern, "|"), func(alternative string) bool {
		for i, p := range strings.Split(alternative, "/") {
			if i < len(parts) && !regexp.MustCompile(p).MatchString(parts[i]) {
				return false
			}
		}
		return true
	})
}
