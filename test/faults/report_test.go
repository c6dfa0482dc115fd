// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"

	"k8s.io/apimachinery/pkg/util/sets"
)

// columns of the table. Plans whose write did not come held, but say little.
var columns = []string{"PLANS", "HELD", "VIOLATED", "NOT REACHED"}

// total is the family of all plans.
const total = "all"

// report adds the plans up by family.
type report struct {
	integration string

	mu sync.Mutex
	// counts are those of the columns and of what was violated, by family.
	counts map[string]map[string]int
}

func (r *report) add(done *run) {
	of := sets.New("PLANS", "HELD")
	if !done.reached.Load() {
		of.Insert("NOT REACHED")
	}
	for _, p := range done.problems {
		of.Delete("HELD").Insert("VIOLATED", string(p.oracle))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, family := range []string{done.plan.family, total} {
		if r.counts[family] == nil {
			r.counts[family] = map[string]int{}
		}
		for name := range of {
			r.counts[family][name]++
		}
	}
}

// String returns the table: a line per family, and what was violated how often.
func (r *report) String() string {
	families := sets.KeySet(r.counts).Delete(total)
	var out strings.Builder
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "FAMILY (%s)\t%s\tVIOLATIONS\n", r.integration, strings.Join(columns, "\t"))
	for _, family := range append(sets.List(families), total) {
		counts := r.counts[family]
		line := []string{family}
		for _, column := range columns {
			line = append(line, strconv.Itoa(counts[column]))
		}
		var violations []string
		for _, oracle := range sets.List(sets.KeySet(counts).Delete(columns...)) {
			violations = append(violations, fmt.Sprintf("%s %d", oracle, counts[oracle]))
		}
		fmt.Fprintln(table, strings.Join(append(line, strings.Join(violations, ", ")), "\t"))
	}
	_ = table.Flush()
	return out.String()
}
