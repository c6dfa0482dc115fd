// SPDX-License-Identifier: Apache-2.0

// Package history checks what must hold of every version of the objects of one namespace.
package history

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/workload"
	workloadfinish "sigs.k8s.io/kueue/pkg/workload/finish"

	"github.com/kueue-trainer/kueue-trainer/test/record"
)

// replace notes the object of a version, and gives the one before.
func replace[T metav1.Object](all map[types.UID]T, v record.Version, obj T) (before T) {
	before = all[obj.GetUID()]
	all[obj.GetUID()] = obj
	if v.Deleted {
		delete(all, obj.GetUID())
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
func (c *checker) trainJobOf(obj metav1.Object) types.UID {
	if jobSet, ok := obj.GetLabels()[jobsetapi.JobSetUIDKey]; ok {
		return c.owners[types.UID(jobSet)]
	}
	if owner := metav1.GetControllerOf(obj); owner != nil {
		return owner.UID
	}
	return ""
}

// bound reports whether a pod has a node and is not over.
func bound(pod *corev1.Pod) bool {
	return pod != nil && pod.Spec.NodeName != "" && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

func mayRun(wl *kueue.Workload) bool {
	return wl.Status.Admission != nil && workload.IsAdmitted(wl) && !workloadfinish.IsFinished(wl)
}

func field(obj *unstructured.Unstructured, path ...string) any {
	value, _, _ := unstructured.NestedFieldNoCopy(obj.Object, path...)
	return value
}

// told are the fields that matter to a person.
var told = [][]string{{"spec", "suspend"}, {"spec", "active"}, {"spec", "nodeName"}, {"status", "admission", "clusterQueue"}, {"status", "phase"}}

// Summary says in one line what matters of a version.
func Summary(v record.Version) string {
	obj, line := v.Object, v.String()
	if v.Deleted {
		return line + ": deleted"
	}
	if obj.GetDeletionTimestamp() != nil {
		line += ", going"
	}
	for _, path := range told {
		if value := field(obj, path...); value != nil {
			line += fmt.Sprintf(" %s=%v", path[len(path)-1], value)
		}
	}
	conditions, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && obj.GetKind() != "Pod" {
			line += fmt.Sprintf(" %v=%v(%v)", c["type"], c["status"], c["reason"])
		}
	}
	return line
}
