// SPDX-License-Identifier: Apache-2.0

package placeholder

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

var gpus = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")}

// running is the Workload of a copy that has been preempted.
func running() *kueue.Workload {
	at := metav1.NewTime(time.Unix(100, 0))
	return &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: "trainjob-llm-1", UID: "wl", Labels: map[string]string{kueue.MultiKueueOriginLabel: "fleet"},
			Finalizers: []string{kueue.ResourceInUseFinalizerName, Finalizer},
		},
		Spec: kueue.WorkloadSpec{
			QueueName: "queue", Priority: ptr.To[int32](7), MaximumExecutionTimeSeconds: ptr.To[int32](60),
			PodSets: []kueue.PodSet{{Name: "node", Count: 1, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				Containers: []corev1.Container{{Name: "trainer", Resources: corev1.ResourceRequirements{Requests: gpus.DeepCopy()}}},
			}}}},
		},
		Status: kueue.WorkloadStatus{
			Admission: &kueue.Admission{ClusterQueue: "gpus", PodSetAssignments: []kueue.PodSetAssignment{{
				Name: "node", Count: ptr.To[int32](1), ResourceUsage: gpus,
				Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"nvidia.com/gpu": "h100"},
			}}},
			ReclaimablePods: []kueue.ReclaimablePod{{Name: "node", Count: 1}},
			AdmissionChecks: []kueue.AdmissionCheckState{{Name: "capacity", State: kueue.CheckStateReady}},
			RequeueState:    &kueue.RequeueState{Count: ptr.To[int32](1)},
			Conditions: []metav1.Condition{
				{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue, Reason: "QuotaReserved", LastTransitionTime: at},
				{Type: kueue.WorkloadAdmitted, Status: metav1.ConditionTrue, Reason: "Admitted", LastTransitionTime: at},
				{Type: kueue.WorkloadEvicted, Status: metav1.ConditionTrue, Reason: "Preempted", LastTransitionTime: at},
			},
		},
	}
}

var gpusQueue = &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "gpus", UID: "cq"}}

// podOf returns a pod of the JobSet with a UID.
func podOf(run string) corev1.Pod {
	return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{jobsetapi.JobSetUIDKey: run}}}
}

func TestOf(t *testing.T) {
	of := running()
	before := of.DeepCopy()
	got, charged := Of(of, gpusQueue, "llm", []corev1.Pod{podOf("b"), podOf("a"), podOf("b")}), Charge(of)

	at := metav1.NewTime(time.Unix(100, 0))
	because := "Pods are left of a TrainJob that is gone from here"
	want := &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: "remainder-wl", Labels: map[string]string{Label: "llm"},
			Annotations:     map[string]string{RunsAnnotation: "a,b"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "kueue.x-k8s.io/v1beta2", Kind: "ClusterQueue", Name: "gpus", UID: "cq", Controller: ptr.To(true)}},
		},
		Spec: kueue.WorkloadSpec{QueueName: "queue", Priority: ptr.To[int32](7), PodSets: of.DeepCopy().Spec.PodSets},
	}
	wantCharged := kueue.WorkloadStatus{
		Admission: of.Status.Admission, ReclaimablePods: of.Status.ReclaimablePods, AdmissionChecks: of.Status.AdmissionChecks,
		Conditions: []metav1.Condition{
			of.Status.Conditions[0],
			{Type: kueue.WorkloadAdmitted, Status: metav1.ConditionTrue, Reason: "PodsLeft", Message: because, LastTransitionTime: at},
			{Type: kueue.WorkloadPodsReady, Status: metav1.ConditionTrue, Reason: "PodsLeft", Message: because, LastTransitionTime: at},
			of.Status.Conditions[2],
		},
	}
	resources := &want.Spec.PodSets[0].Template.Spec.Containers[0].Resources
	resources.Requests["kueue-trainer.dev/remainder"] = resource.MustParse("1")
	resources.Limits = corev1.ResourceList{"kueue-trainer.dev/remainder": resource.MustParse("0")}
	expect.Same(t, "The remainder differs", want, got)
	expect.Same(t, "What it is charged differs", wantCharged, charged)
	expect.Same(t, "The Workload that it is of changed", before, of)
}

func TestHold(t *testing.T) {
	copied := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{kueue.MultiKueueOriginLabel: "fleet"}}}
	local := &kueue.Workload{}
	for name, tc := range map[string]struct {
		wl   *kueue.Workload
		want []string
	}{
		"a copy":                     {wl: copied, want: []string{kueue.ResourceInUseFinalizerName, Finalizer}},
		"a Workload of this cluster": {wl: local, want: []string{kueue.ResourceInUseFinalizerName}},
	} {
		t.Run(name, func(t *testing.T) {
			expect.That(t, Hold(tc.wl) && !Hold(tc.wl), "Hold does not report whether it changed something")
			expect.Same(t, "Finalizers differ", tc.want, tc.wl.Finalizers)
			expect.That(t, Release(tc.wl) && !Release(tc.wl) && len(tc.wl.Finalizers) == 0,
				"Release leaves %v, or does not report whether it changed something", tc.wl.Finalizers)
		})
	}
}

func TestPodsOf(t *testing.T) {
	pods := []corev1.Pod{podOf("former"), podOf("this"), podOf("")}
	rest := Of(running(), gpusQueue, "llm", pods[:1])
	unlabelled := rest.DeepCopy()
	unlabelled.Labels = nil
	for name, tc := range map[string]struct {
		rest *kueue.Workload
		want []corev1.Pod
	}{
		"a remainder":           {rest: rest, want: pods[:1]},
		"one without its label": {rest: unlabelled},
		"another Workload":      {rest: running()},
	} {
		t.Run(name, func(t *testing.T) { expect.Same(t, "PodsOf", tc.want, PodsOf(tc.rest, pods), cmpopts.EquateEmpty()) })
	}
}

func TestUncharged(t *testing.T) {
	pods := []corev1.Pod{podOf("former"), podOf("this"), podOf("")}
	other := Of(running(), gpusQueue, "llm", pods[:1])
	expect.Same(t, "Nobody is charged for", pods[:2], Uncharged(pods, []kueue.Workload{*other}))
	other.Status = Charge(running())
	expect.Same(t, "With a charge for the former JobSet, nobody is charged for", pods[1:2], Uncharged(pods, []kueue.Workload{*other}))
}
