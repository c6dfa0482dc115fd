// SPDX-License-Identifier: Apache-2.0

// Package faults runs a scenario of preemption and resumption against a real control
// plane, with the manager in a process of its own and faults put into its connection.
package faults

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	seed       = flag.Uint64("faults.seed", 0, "chooses the sample of plans; 0: by the clock")
	sampleSize = flag.Int("faults.sample", 12, "number of plans to run")
	all        = flag.Bool("faults.all", false, "run all plans")
	reportFile = flag.String("faults.report", "", "file to write the table to as well")
)

// clean is what a run without faults does.
type clean struct {
	scenario *scenario
	// writes that every clean run makes.
	writes []writeRef
	// counts are the most writes of a kind, events the most events, of any clean run.
	counts map[writeKind]int
	events int
	end    endState
}

// cleanRuns is how many runs the clean one is made of: what differs between them is
// chance, and no fault.
const cleanRuns = 2

func TestFaults(t *testing.T) {
	ctx := t.Context()
	h, err := newHarness(ctx, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	ctx = context.WithoutCancel(ctx)
	t.Cleanup(func() {
		if err := h.close(ctx); err != nil {
			t.Error(err)
		}
	})
	results := &report{integration: h.cluster.Integration, families: map[string]*tally{}}
	var plans []plan
	for _, s := range []*scenario{preemption, dependencies} {
		if c := learn(t, h, s, results); c != nil {
			t.Logf("writes of a clean run: %v", c.writes)
			plans = append(plans, plansFor(h, c)...)
		}
	}
	// Those that run together go on after this function.
	t.Cleanup(func() {
		t.Logf("\n%s", results)
		if *reportFile != "" {
			if err := os.WriteFile(*reportFile, []byte(results.String()), 0o644); err != nil {
				t.Error(err)
			}
		}
	})
	for _, p := range choose(t, plans) {
		t.Run(p.String(), func(t *testing.T) {
			if p.together {
				t.Parallel()
			}
			r := h.newRun(t, p)
			defer func() {
				r.judge(ctx)
				results.add(r)
			}()
			r.play(t.Context())
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
	t.Logf("-faults.seed=%d", *seed)
	return sample(plans, *sampleSize, *seed)
}

// learn runs a scenario without faults. What it violates even so is counted; one that
// does not come to its end gives nil.
func learn(t *testing.T, h *harness, s *scenario, results *report) *clean {
	c := &clean{scenario: s, counts: map[writeKind]int{}}
	selected := false
	for n := range cleanRuns {
		p := plan{family: "clean", name: fmt.Sprintf("%s, run %d", strings.Join(s.jobs, " and "), n+1), scenario: s}
		ended := false
		t.Run(p.String(), func(t *testing.T) {
			selected = true
			r := h.newRun(t, p)
			r.reached = true
			defer func() {
				r.judge(context.WithoutCancel(t.Context()))
				results.add(r)
			}()
			r.play(t.Context())
			end, err := r.endState(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			c.add(n, r, end)
			ended = true
		})
		if !selected {
			t.Fatal("Plans are made from clean runs: select them as well, -run 'TestFaults/^clean$|TestFaults/...'")
		}
		if !ended {
			return nil
		}
	}
	return c
}

func (c *clean) add(n int, r *run, end endState) {
	writes := refs(r.writes())
	if n == 0 {
		c.writes = writes
	}
	c.writes = slices.DeleteFunc(c.writes, func(w writeRef) bool { return !slices.Contains(writes, w) })
	for kind, count := range countKinds(r.writes()) {
		c.counts[kind] = max(count, c.counts[kind])
	}
	c.events = max(c.events, r.proxy.Events(r.namespace))
	c.end = maps.Clone(end)
}
