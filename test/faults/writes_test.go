// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/kueue-trainer/kueue-trainer/test/faults/internal/apiproxy"
)

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
