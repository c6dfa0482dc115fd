// SPDX-License-Identifier: Apache-2.0

// Package history checks what must hold of every version of the objects of one namespace.
package history

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kueue-trainer/kueue-trainer/test/record"
)

// state is the namespace at one resource version.
type state struct {
	objects map[types.UID]*unstructured.Unstructured
	// flavors holds all node labels and tolerations that a flavor ever had, the
	// present ones last.
	flavors map[string][]*unstructured.Unstructured
	// owners maps a JobSet to its TrainJob; it outlives both.
	owners map[types.UID]types.UID
	// names are those of the TrainJobs.
	names map[types.UID]string
	// freed is since when a pod has no gate, stopped since when a Workload must not start
	// any, as resource versions.
	freed, stopped map[types.UID]uint64
}

func newState() *state {
	return &state{
		objects: map[types.UID]*unstructured.Unstructured{},
		flavors: map[string][]*unstructured.Unstructured{},
		owners:  map[types.UID]types.UID{},
		names:   map[types.UID]string{},
		freed:   map[types.UID]uint64{},
		stopped: map[types.UID]uint64{},
	}
}

// apply goes on to the next version and gives the object as it was before, or nil.
func (s *state) apply(v record.Version) *unstructured.Unstructured {
	obj := v.Object
	before := s.objects[obj.GetUID()]
	if v.Deleted {
		delete(s.objects, obj.GetUID())
		return before
	}
	s.objects[obj.GetUID()] = obj
	switch obj.GetKind() {
	case "ResourceFlavor":
		s.flavors[obj.GetName()] = append(s.flavors[obj.GetName()], obj)
	case "TrainJob":
		s.names[obj.GetUID()] = obj.GetName()
	case "JobSet":
		if owner := metav1.GetControllerOf(obj); owner != nil {
			s.owners[obj.GetUID()] = owner.UID
		}
	case "Pod":
		since(s.freed, v, field(obj, "spec", "schedulingGates") == nil)
	case "Workload":
		since(s.stopped, v, condition(obj, "Evicted") || !active(obj))
	}
	return before
}

// since remembers the version from which on something is so.
func since(versions map[types.UID]uint64, v record.Version, is bool) {
	uid := v.Object.GetUID()
	if !is {
		delete(versions, uid)
	} else if versions[uid] == 0 {
		versions[uid] = v.RV
	}
}

// trainJobOf returns the TrainJob that a pod or a Workload belongs to.
func (s *state) trainJobOf(obj *unstructured.Unstructured) types.UID {
	if obj.GetKind() == "Pod" {
		return s.owners[types.UID(obj.GetLabels()["jobset.sigs.k8s.io/jobset-uid"])]
	}
	if owner := metav1.GetControllerOf(obj); owner != nil {
		return owner.UID
	}
	return ""
}

// of returns the objects of one kind that belong to a TrainJob, by name.
func (s *state) of(kind string, trainJob types.UID) []*unstructured.Unstructured {
	var out []*unstructured.Unstructured
	for _, obj := range s.objects {
		if obj.GetKind() == kind && s.trainJobOf(obj) == trainJob {
			out = append(out, obj)
		}
	}
	slices.SortFunc(out, func(a, b *unstructured.Unstructured) int {
		if a.GetName() < b.GetName() {
			return -1
		}
		return 1
	})
	return out
}

// bound reports whether a pod has a node and is not over.
func bound(pod *unstructured.Unstructured) bool {
	phase := text(pod, "status", "phase")
	return text(pod, "spec", "nodeName") != "" && phase != "Succeeded" && phase != "Failed"
}

// admitted reports whether a Workload holds quota and may run.
func admitted(wl *unstructured.Unstructured) bool {
	return field(wl, "status", "admission") != nil && condition(wl, "Admitted") && !condition(wl, "Finished")
}

func active(wl *unstructured.Unstructured) bool { return field(wl, "spec", "active") != false }

func condition(obj *unstructured.Unstructured, name string) bool {
	conditions, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == name {
			return c["status"] == "True"
		}
	}
	return false
}

func field(obj *unstructured.Unstructured, path ...string) any {
	value, _, _ := unstructured.NestedFieldNoCopy(obj.Object, path...)
	return value
}

func text(obj *unstructured.Unstructured, path ...string) string {
	value, _ := field(obj, path...).(string)
	return value
}

// Summary says in one line what matters of a version.
func Summary(v record.Version) string {
	obj := v.Object
	line := v.String()
	if v.Deleted {
		return line + ": deleted"
	}
	if obj.GetDeletionTimestamp() != nil {
		line += ", going"
	}
	switch obj.GetKind() {
	case "TrainJob", "JobSet", "Job":
		line += fmt.Sprintf(": suspend=%v", field(obj, "spec", "suspend"))
	case "Workload":
		line += fmt.Sprintf(": active=%v admission=%v", field(obj, "spec", "active"), field(obj, "status", "admission") != nil)
	case "Pod":
		line += fmt.Sprintf(": node=%q phase=%s", text(obj, "spec", "nodeName"), text(obj, "status", "phase"))
	}
	conditions, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && obj.GetKind() != "Pod" {
			line += fmt.Sprintf(" %v=%v(%v)", c["type"], c["status"], c["reason"])
		}
	}
	return line
}
