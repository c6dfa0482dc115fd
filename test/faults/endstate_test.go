// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/kueue-trainer/kueue-trainer/test/faults/internal/history"
	"github.com/kueue-trainer/kueue-trainer/test/record"
)

// endState is what a run leaves behind, in sections like "low/workload/conditions", with
// names that every run has in common.
type endState map[string]string

// workloadHash is the part of a Workload's name that differs from run to run.
var workloadHash = regexp.MustCompile(`trainjob-(low|high|staged)-[a-z0-9]+`)

// endOf returns what versions end in, by kind and name.
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
	"Workload": {
		"podsets": {"spec", "podSets"}, "queue": {"spec", "queueName"},
		"admission": {"status", "admission"}, "finalizers": {"metadata", "finalizers"},
	},
	"JobSet": {"suspend": {"spec", "suspend"}},
	"Job":    {"suspend": {"spec", "suspend"}},
	"Pod":    {"selector": {"spec", "nodeSelector"}, "gates": {"spec", "schedulingGates"}, "phase": {"status", "phase"}},
}

// describe adds the sections of one object.
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
		section("tolerations", sorted(tolerations))
		section("labels", history.KueueKeys(obj.GetLabels()))
		section("annotations", history.KueueKeys(obj.GetAnnotations()))
	}
}

// sorted returns a list in an order of its own: that of a pod's tolerations depends on
// whether its Job was there before the admission, and means nothing.
func sorted(items []any) []string {
	var out []string
	for _, item := range items {
		out = append(out, fmt.Sprint(item))
	}
	slices.Sort(out)
	return out
}

// conditions returns what holds, sorted; when each came about depends on who was faster,
// and so does whether anybody saw the pods ready before they ended.
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
