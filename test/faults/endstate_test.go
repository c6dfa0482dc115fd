// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kueue-trainer/kueue-trainer/test/faults/internal/history"
)

// lasting are the kinds that an end state is made of.
var lasting = []schema.GroupVersionResource{
	{Group: "trainer.kubeflow.org", Version: "v1alpha1", Resource: "trainjobs"},
	{Group: "kueue.x-k8s.io", Version: "v1beta2", Resource: "workloads"},
	{Group: "jobset.x-k8s.io", Version: "v1alpha2", Resource: "jobsets"},
	{Group: "batch", Version: "v1", Resource: "jobs"},
	{Version: "v1", Resource: "pods"},
}

// endState is what a run leaves behind, in sections like "low/workload/conditions", with
// names that every run has in common.
type endState map[string]string

// workloadHash is the part of a Workload's name that differs from run to run.
var workloadHash = regexp.MustCompile(`trainjob-(low|high|staged)-[a-z0-9]+`)

func (r *run) endState(ctx context.Context) (endState, error) {
	end := endState{}
	for _, gvr := range lasting {
		list, err := r.api.Resource(gvr).Namespace(r.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			r.describe(end, &list.Items[i])
		}
	}
	return end, nil
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
	job := jobInName.FindStringSubmatch(obj.GetName())
	if job == nil {
		return
	}
	section := func(name string, value any) {
		key := fmt.Sprintf("%s/%s/%s", job[1], strings.ToLower(obj.GetKind()), name)
		data, err := json.Marshal(value)
		if err != nil {
			data = []byte(err.Error())
		}
		end[key] += workloadHash.ReplaceAllString(strings.ReplaceAll(string(data), r.Suffix, "SUFFIX"), "trainjob-$1-HASH")
	}
	for name, path := range described[obj.GetKind()] {
		value, _, _ := unstructured.NestedFieldNoCopy(obj.Object, path...)
		section(name, value)
	}
	switch obj.GetKind() {
	case "TrainJob":
		_, entries := history.Entries(obj)
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
		data, err := json.Marshal(item)
		out = append(out, fmt.Sprintf("%s%v", data, err))
	}
	slices.Sort(out)
	return out
}

// conditions returns what holds, sorted; when each came about depends on who was faster,
// and so does whether anybody saw the pods ready before they ended.
func conditions(obj *unstructured.Unstructured) []string {
	list, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
	var out []string
	for _, c := range list {
		if c, ok := c.(map[string]any); ok && c["type"] != "PodsReady" {
			out = append(out, fmt.Sprintf("%v=%v", c["type"], c["status"]))
		}
	}
	slices.Sort(out)
	return out
}

// compareEnd: whatever happened in between, the run leaves behind what the clean one did.
func (r *run) compareEnd(ctx context.Context) {
	var err error
	if r.end, err = r.endState(ctx); err != nil {
		r.fail(sameEnd, "%v", err)
		return
	}
	if r.plan.clean == nil {
		return
	}
	ignore := cmp.FilterPath(func(p cmp.Path) bool {
		key, ok := p.Last().(cmp.MapIndex)
		return ok && slices.ContainsFunc(r.plan.differs, func(d string) bool { return strings.HasPrefix(key.Key().String(), d) })
	}, cmp.Ignore())
	if diff := cmp.Diff(r.plan.clean.end, r.end, ignore); diff != "" {
		r.fail(sameEnd, "(-clean +run)\n%s", diff)
	}
}
