// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/kueue-trainer/kueue-trainer/test/faults/internal/history"
)

// tally is what became of the plans of one family.
type tally struct {
	run, held, violated int
	// unreached are plans whose write did not come; they held, but say little.
	unreached int
	oracles   map[history.Invariant]int
}

func (t *tally) add(done *run) {
	t.run++
	if !done.reached {
		t.unreached++
	}
	if len(done.problems) == 0 {
		t.held++
		return
	}
	t.violated++
	oracles := sets.New[history.Invariant]()
	for _, p := range done.problems {
		oracles.Insert(p.oracle)
	}
	for oracle := range oracles {
		t.oracles[oracle]++
	}
}

func (t *tally) String() string {
	var violations []string
	for _, oracle := range slices.Sorted(maps.Keys(t.oracles)) {
		violations = append(violations, fmt.Sprintf("%s %d", oracle, t.oracles[oracle]))
	}
	return fmt.Sprintf("%d\t%d\t%d\t%d\t%s\n", t.run, t.held, t.violated, t.unreached, strings.Join(violations, ", "))
}

// report adds the plans up by family.
type report struct {
	integration string

	mu   sync.Mutex
	runs []*run
}

func (r *report) add(done *run) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.runs = append(r.runs, done)
}

// String returns the table: a line per family, and what was violated how often.
func (r *report) String() string {
	families, all := map[string]*tally{}, &tally{oracles: map[history.Invariant]int{}}
	for _, done := range r.runs {
		if families[done.plan.family] == nil {
			families[done.plan.family] = &tally{oracles: map[history.Invariant]int{}}
		}
		families[done.plan.family].add(done)
		all.add(done)
	}
	var out strings.Builder
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "FAMILY (%s)\tPLANS\tHELD\tVIOLATED\tNOT REACHED\tVIOLATIONS\n", r.integration)
	for _, family := range slices.Sorted(maps.Keys(families)) {
		fmt.Fprintf(table, "%s\t%s", family, families[family])
	}
	fmt.Fprintf(table, "all\t%s", all)
	_ = table.Flush()
	return out.String()
}
