// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"

	"github.com/kueue-trainer/kueue-trainer/test/faults/internal/history"
)

// tally is what became of the plans of one family.
type tally struct {
	run, held, violated int
	// unreached are plans whose write did not come; they held, but say little.
	unreached int
	oracles   map[history.Invariant]int
}

// report adds the plans up by family.
type report struct {
	integration string

	mu       sync.Mutex
	families map[string]*tally
}

func (r *report) add(done *run) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.families[done.plan.family]
	if t == nil {
		t = &tally{oracles: map[history.Invariant]int{}}
		r.families[done.plan.family] = t
	}
	t.run++
	if !done.reached {
		t.unreached++
	}
	if len(done.problems) == 0 {
		t.held++
		return
	}
	t.violated++
	seen := map[history.Invariant]bool{}
	for _, p := range done.problems {
		if !seen[p.oracle] {
			t.oracles[p.oracle]++
		}
		seen[p.oracle] = true
	}
}

// String returns the table: a line per family, and what was violated how often.
func (r *report) String() string {
	var out strings.Builder
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "FAMILY (%s)\tPLANS\tHELD\tVIOLATED\tNOT REACHED\tVIOLATIONS\n", r.integration)
	total := tally{}
	for _, family := range slices.Sorted(maps.Keys(r.families)) {
		t := r.families[family]
		total.run, total.held, total.violated, total.unreached = total.run+t.run, total.held+t.held, total.violated+t.violated, total.unreached+t.unreached
		var violations []string
		for _, oracle := range slices.Sorted(maps.Keys(t.oracles)) {
			violations = append(violations, fmt.Sprintf("%s %d", oracle, t.oracles[oracle]))
		}
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%s\n", family, t.run, t.held, t.violated, t.unreached, strings.Join(violations, ", "))
	}
	fmt.Fprintf(table, "all\t%d\t%d\t%d\t%d\t\n", total.run, total.held, total.violated, total.unreached)
	_ = table.Flush()
	return out.String()
}
