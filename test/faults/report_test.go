// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/kueue-trainer/kueue-trainer/test/faults/internal/apiproxy"
	"github.com/kueue-trainer/kueue-trainer/test/faults/internal/history"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
	"github.com/kueue-trainer/kueue-trainer/test/kit/pages"
	"github.com/kueue-trainer/kueue-trainer/test/record"
)

// columns of the table. Plans whose write did not come held, but say little.
var columns = []string{"PLANS", "HELD", "VIOLATED", "NOT REACHED"}

// total is the family of all plans.
const total = "all"

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

// String returns the table, in Markdown: a line per family, and what was violated how often.
func (r *report) String() string {
	rows := [][]string{slices.Concat([]string{"family (" + r.integration + ")"}, columns, []string{"violations"})}
	for _, family := range append(sets.List(sets.KeySet(r.counts).Delete(total)), total) {
		counts := r.counts[family]
		said := expect.Each(columns, func(column string) string { return strconv.Itoa(counts[column]) })
		violations := expect.Each(sets.List(sets.KeySet(counts).Delete(columns...)), func(oracle string) string { return fmt.Sprintf("%s %d", oracle, counts[oracle]) })
		rows = append(rows, slices.Concat([]string{family}, said, []string{strings.Join(violations, ", ")}))
	}
	return pages.Table(rows...)
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

func countKinds(writes []writeRef) map[writeKind]int {
	counts := map[writeKind]int{}
	for _, ref := range writes {
		counts[ref.writeKind] = ref.n
	}
	return counts
}

// endState is what a run leaves behind, by sections like "low/workload/conditions", with names that all runs have.
type endState map[string]string

// workloadHash is the part of a Workload's name that differs from run to run.
var workloadHash = regexp.MustCompile(`trainjob-(low|high|staged)-[a-z0-9]+`)

func (r *run) endOf(versions []record.Version) endState {
	last := map[string]record.Version{}
	for _, v := range versions {
		last[fmt.Sprintf("%s/%s/%s", v.Object.GetKind(), v.Object.GetName(), v.Object.GetUID())] = v
	}
	end := endState{}
	for _, key := range slices.Sorted(maps.Keys(last)) {
		if v := last[key]; !v.Deleted {
			r.describe(end, v.Object)
		}
	}
	return end
}

// described are the fields of each kind that an end state is made of.
var described = map[string]map[string][]string{
	"TrainJob": {"suspend": {"spec", "suspend"}, "labels": {"metadata", "labels"}},
	"Workload": {"podsets": {"spec", "podSets"}, "queue": {"spec", "queueName"}, "admission": {"status", "admission"}, "finalizers": {"metadata", "finalizers"}},
	"JobSet":   {"suspend": {"spec", "suspend"}},
	"Job":      {"suspend": {"spec", "suspend"}},
	"Pod":      {"selector": {"spec", "nodeSelector"}, "gates": {"spec", "schedulingGates"}, "phase": {"status", "phase"}},
}

func (r *run) describe(end endState, obj *unstructured.Unstructured) {
	fields, lasts := described[obj.GetKind()]
	job := jobInName.FindStringSubmatch(obj.GetName())
	if job == nil || !lasts {
		return
	}
	section := func(name string, value any) {
		key := fmt.Sprintf("%s/%s/%s", job[1], strings.ToLower(obj.GetKind()), name)
		// What came as JSON goes as JSON.
		data, _ := json.Marshal(value)
		end[key] += workloadHash.ReplaceAllString(strings.ReplaceAll(string(data), r.Suffix, "SUFFIX"), "trainjob-$1-HASH")
	}
	for name, path := range fields {
		value, _, _ := unstructured.NestedFieldNoCopy(obj.Object, path...)
		section(name, value)
	}
	switch obj.GetKind() {
	case "TrainJob":
		_, entries := history.Entries(obj.DeepCopy())
		section("patches", history.WithoutTime(entries))
		section("conditions", conditions(obj))
	case "Workload":
		section("conditions", conditions(obj))
	case "Pod":
		tolerations, _, _ := unstructured.NestedSlice(obj.Object, "spec", "tolerations")
		// Their order depends on whether the pod's Job was there before the admission, and means nothing.
		slices.SortFunc(tolerations, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		section("tolerations", tolerations)
		section("labels", history.KueueKeys(obj.GetLabels()))
		section("annotations", history.KueueKeys(obj.GetAnnotations()))
	}
}

// conditions returns what holds, sorted; when, and whether the pods were seen ready, depends on who was faster.
func conditions(obj *unstructured.Unstructured) []string {
	list, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
	out := sets.New[string]()
	for _, c := range list {
		if c, ok := c.(map[string]any); ok && c["type"] != "PodsReady" {
			out.Insert(fmt.Sprintf("%v=%v", c["type"], c["status"]))
		}
	}
	return sets.List(out)
}

// compareEnd: whatever happened in between, the run leaves behind what the clean one did.
func (r *run) compareEnd(c *clean) {
	ignore := cmp.FilterPath(func(p cmp.Path) bool {
		key, ok := p.Last().(cmp.MapIndex)
		return ok && slices.ContainsFunc(r.plan.differs, func(d string) bool { return strings.HasPrefix(key.Key().String(), d) })
	}, cmp.Ignore())
	if diff := cmp.Diff(c.end, r.end, ignore); diff != "" {
		r.fail(sameEnd, "(-clean +run)\n%s", diff)
	}
}
