// SPDX-License-Identifier: Apache-2.0

// Package faults runs a scenario of preemption and resumption against a real control
// plane, with the manager in a process of its own and faults put into its connection.
package faults

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/kueue-trainer/kueue-trainer/test/faults/internal/apiproxy"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

var (
	seed       = flag.Uint64("faults.seed", 0, "chooses the sample of plans; 0: by the clock")
	sampleSize = flag.Int("faults.sample", 12, "number of plans to run")
	all        = flag.Bool("faults.all", false, "run all plans")
)

// clean is what a run without faults does.
type clean struct {
	scenario *scenario
	runs     int
	// writes that every clean run makes.
	writes []writeRef
	// counts are the most writes of a kind, events the most events, of any clean run.
	counts map[writeKind]int
	events int
	end    endState
}

// cleanRuns is how many runs the clean one is made of: what differs between them is chance, and no fault.
const cleanRuns = 2

func TestFaults(t *testing.T) {
	h := newHarness(context.WithoutCancel(t.Context()), t)
	results := &report{integration: h.cluster.Integration, counts: map[string]map[string]int{}}
	var plans []plan
	for _, c := range learn(t, h, results) {
		t.Logf("writes of a clean run: %v", c.writes)
		plans = append(plans, plansFor(h, c)...)
	}
	// Those that run together go on after this function.
	t.Cleanup(func() { t.Logf("\n%s", results) })
	for _, p := range choose(t, plans) {
		t.Run(p.String(), func(t *testing.T) {
			if p.together {
				t.Parallel()
			}
			h.carryOut(t, p, results)
		})
	}
}

// choose returns the plans that the flags ask for. Who names one means it.
func choose(t *testing.T, plans []plan) []plan {
	if *all || strings.Contains(flag.Lookup("test.run").Value.String(), "/") {
		return plans
	}
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano()) % 1e6
	}
	chosen := sample(plans, *sampleSize, *seed)
	t.Logf("-faults.seed=%d, a sample: %d of %d plans", *seed, len(chosen), len(plans))
	return chosen
}

// learn runs the scenarios without faults, all at once. What they violate even so is counted; one
// that does not come to its end makes no plans.
func learn(t *testing.T, h *harness, results *report) []*clean {
	var mu sync.Mutex
	selected := false
	learned := []*clean{{scenario: preemption}, {scenario: dependencies}}
	t.Run("clean", func(t *testing.T) {
		selected = true
		for _, c := range learned {
			for n := range cleanRuns {
				p := plan{family: "clean", name: fmt.Sprintf("%s, run %d", strings.Join(c.scenario.jobs, " and "), n+1), scenario: c.scenario, together: true}
				t.Run(p.name, func(t *testing.T) {
					t.Parallel()
					r := h.carryOut(t, p, results)
					mu.Lock()
					defer mu.Unlock()
					c.add(r)
				})
			}
		}
	})
	expect.Need(t, selected, "Plans are made from clean runs: select them as well, -run 'TestFaults/^clean$|TestFaults/...'")
	return slices.DeleteFunc(learned, func(c *clean) bool { return c.runs < cleanRuns })
}

func (c *clean) add(r *run) {
	writes := refs(r.writes())
	if c.runs++; c.runs == 1 {
		c.writes, c.counts = writes, map[writeKind]int{}
	}
	c.writes = slices.DeleteFunc(c.writes, func(w writeRef) bool { return !slices.Contains(writes, w) })
	for kind, count := range countKinds(writes) {
		c.counts[kind] = max(count, c.counts[kind])
	}
	c.events = max(c.events, r.proxy.Events(r.Namespace))
	c.end = r.end
}

func TestRefs(t *testing.T) {
	var writes []apiproxy.Write
	for _, r := range []apiproxy.Request{
		{Verb: "patch", Resource: "trainjobs.trainer.kubeflow.org", Name: "low"}, {Verb: "patch", Resource: "jobs.batch", Name: "low-node-0"},
		{Verb: "patch", Resource: "workloads.kueue.x-k8s.io", Subresource: "status", Name: "trainjob-high-4c5d6"},
		{Verb: "patch", Resource: "trainjobs.trainer.kubeflow.org", Name: "low"}, {Verb: "update", Resource: "localqueues.kueue.x-k8s.io", Name: "queue"},
	} {
		writes = append(writes, apiproxy.Write{Request: r})
	}
	expect.Same(t, "Writes", "[patch trainjobs low #1 patch jobs low #1 patch workloads/status high #1 patch trainjobs low #2]", fmt.Sprint(refs(writes)))
}

func TestSampleHasEveryFamilyAndFollowsTheSeed(t *testing.T) {
	plans := append(atWrites([]writeRef{
		{writeKind{"create", "workloads", low}, 1}, {writeKind{"patch", "workloads/status", low}, 1},
		{writeKind{"patch", "trainjobs", low}, 1}, {writeKind{"patch", "trainjobs", low}, 2},
	}), atSteps(func(string) bool { return true })...)
	names := func(plans []plan) (families, names sets.Set[string]) {
		families, names = sets.New[string](), sets.New[string]()
		for _, p := range plans {
			families.Insert(p.family)
			names.Insert(p.String())
		}
		return families, names
	}
	all, _ := names(plans)
	for seed := range uint64(20) {
		families, chosen := names(sample(plans, len(all), seed))
		expect.Same(t, fmt.Sprintf("seed %d: unexpected families", seed), all, families)
		_, again := names(sample(plans, len(all), seed))
		expect.Same(t, "the same seed chooses other plans", chosen, again)
	}
}
