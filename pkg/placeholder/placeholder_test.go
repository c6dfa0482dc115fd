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

	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// running is the Workload of a copy that has been preempted.
func running() *kueue.Workload {
	wl := kit.Workload("team", "trainjob-llm-1", "queue", time.Time{}, kit.PodSet("node", 1, "nvidia.com/gpu", "8"))
	wl.UID, wl.Labels, wl.Finalizers = "wl", map[string]string{kueue.MultiKueueOriginLabel: "fleet"}, []string{kueue.ResourceInUseFinalizerName, Finalizer}
	wl.Spec.Priority, wl.Spec.MaximumExecutionTimeSeconds = ptr.To[int32](7), ptr.To[int32](60)
	wl.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "node", Count: 1}}
	wl.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "capacity", State: kueue.CheckStateReady}}
	wl.Status.RequeueState = &kueue.RequeueState{Count: ptr.To[int32](1)}
	return kit.With(wl, kit.Is(kueue.WorkloadQuotaReserved, "QuotaReserved"), kit.Is(kueue.WorkloadAdmitted, "Admitted"),
		kit.Is(kueue.WorkloadEvicted, "Preempted"), kit.Assigned("gpus", "h100"))
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

	left := func(condition string) metav1.Condition {
		is := kit.True(condition, "PodsLeft")
		is.Message = "Pods are left of a TrainJob that is gone from here"
		return is
	}
	want := &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: "remainder-wl", Labels: map[string]string{Label: "llm"},
			Annotations:     map[string]string{RunsAnnotation: "a,b", WorkloadAnnotation: "trainjob-llm-1"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "kueue.x-k8s.io/v1beta2", Kind: "ClusterQueue", Name: "gpus", UID: "cq", Controller: ptr.To(true)}},
		},
		Spec: kueue.WorkloadSpec{QueueName: "queue", Priority: ptr.To[int32](7), PodSets: of.DeepCopy().Spec.PodSets},
	}
	wantCharged := kueue.WorkloadStatus{
		Admission: of.Status.Admission, ReclaimablePods: of.Status.ReclaimablePods, AdmissionChecks: of.Status.AdmissionChecks,
		Conditions: []metav1.Condition{of.Status.Conditions[0], left(kueue.WorkloadAdmitted), left(kueue.WorkloadPodsReady), of.Status.Conditions[2]},
	}
	resources := &want.Spec.PodSets[0].Template.Spec.Containers[0].Resources
	resources.Requests["kueue-trainer.dev/remainder"] = resource.MustParse("1")
	resources.Limits = corev1.ResourceList{"kueue-trainer.dev/remainder": resource.MustParse("0")}
	expect.Same(t, "The remainder differs", want, got)
	expect.Same(t, "What it is charged differs", wantCharged, charged)
	expect.Same(t, "The Workload that it is of changed", before, of)
}

func TestHold(t *testing.T) {
	expect.Rows(t, map[string]expect.Row[*kueue.Workload, []string]{
		"a copy":                     {In: kit.With(&kueue.Workload{}, kit.Copied), Want: []string{kueue.ResourceInUseFinalizerName, Finalizer}},
		"a Workload of this cluster": {In: &kueue.Workload{}, Want: []string{kueue.ResourceInUseFinalizerName}},
	}, func(t *testing.T, tc expect.Row[*kueue.Workload, []string]) {
		expect.That(t, Hold(tc.In) && !Hold(tc.In), "Hold does not report whether it changed something")
		expect.Same(t, "Finalizers differ", tc.Want, tc.In.Finalizers)
		expect.That(t, Release(tc.In) && !Release(tc.In) && len(tc.In.Finalizers) == 0,
			"Release leaves %v, or does not report whether it changed something", tc.In.Finalizers)
	})
}

func TestOfCopy(t *testing.T) {
	expect.Answers(t, OfCopy, map[string]expect.Row[*kueue.Workload, bool]{
		"a copy that is not held yet":        {In: kit.With(&kueue.Workload{}, kit.Copied), Want: true},
		"one that lost its label since":      {In: &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Finalizers: []string{Finalizer}}}, Want: true},
		"a Workload of this cluster's, held": {In: kit.With(&kueue.Workload{}, kit.Held)},
	})
}

func TestPodsOf(t *testing.T) {
	pods := []corev1.Pod{podOf("former"), podOf("this"), podOf("")}
	rest := Of(running(), gpusQueue, "llm", pods[:1])
	unlabelled := rest.DeepCopy()
	unlabelled.Labels = nil
	expect.Answers(t, func(in *kueue.Workload) []corev1.Pod { return PodsOf(in, pods) }, map[string]expect.Row[*kueue.Workload, []corev1.Pod]{
		"a remainder":           {In: rest, Want: pods[:1]},
		"one without its label": {In: unlabelled},
		"one for no pod":        {In: Of(running(), gpusQueue, "llm", nil)},
		"another Workload":      {In: running()},
	}, cmpopts.EquateEmpty())
}

func TestUncharged(t *testing.T) {
	pods := []corev1.Pod{podOf("former"), podOf("this"), podOf("")}
	other := Of(running(), gpusQueue, "llm", pods[:1])
	expect.Same(t, "Nobody is charged for", pods[:2], Uncharged(pods, []kueue.Workload{*other}))
	other.Status = Charge(running())
	expect.Same(t, "With a charge for the former JobSet, nobody is charged for", pods[1:2], Uncharged(pods, []kueue.Workload{*other}))
}
