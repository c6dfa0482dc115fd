// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/kueue-trainer/kueue-trainer/test/faults/internal/apiproxy"
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

// writeKind is what writes are counted by: the same change of the same job.
type writeKind struct {
	verb string
	// resource is the plural, with the subresource: "workloads/status".
	resource string
	job      string
}

func (k writeKind) String() string { return fmt.Sprintf("%s %s %s", k.verb, k.resource, k.job) }

// writeRef is one write of a run: the nth of its kind, from 1.
type writeRef struct {
	writeKind
	n int
}

func (r writeRef) String() string { return fmt.Sprintf("%s #%d", r.writeKind, r.n) }

// jobInName finds the TrainJob that an object belongs to by its name: Workloads, JobSets
// and child Jobs have that in theirs, beside hashes that differ from run to run.
var jobInName = regexp.MustCompile(`(?:^|-)(low|high|staged)(?:-|$)`)

func kindOf(r apiproxy.Request) writeKind {
	resource, _, _ := strings.Cut(r.Resource, ".")
	if r.Subresource != "" {
		resource += "/" + r.Subresource
	}
	kind := writeKind{verb: r.Verb, resource: resource}
	if found := jobInName.FindStringSubmatch(r.Name); found != nil {
		kind.job = found[1]
	}
	return kind
}

// refs numbers writes by kind; writes that belong to no job are left out.
func refs(writes []apiproxy.Write) []writeRef {
	counts := map[writeKind]int{}
	var out []writeRef
	for _, w := range writes {
		if kind := kindOf(w.Request); kind.job != "" {
			counts[kind]++
			out = append(out, writeRef{kind, counts[kind]})
		}
	}
	return out
}

// countKinds returns how many writes of each kind there are.
func countKinds(writes []writeRef) map[writeKind]int {
	counts := map[writeKind]int{}
	for _, ref := range writes {
		counts[ref.writeKind] = ref.n
	}
	return counts
}
