// SPDX-License-Identifier: Apache-2.0

// Package placeholder knows how a worker cluster of MultiKueue keeps the quota of a TrainJob until
// its last pod is gone. Kueue of the manager cluster takes its finalizer off the Workload in the
// worker and deletes it, pods or not, and asks for that name again when the job is dispatched the
// next time: while a deleted Workload of it is there, Kueue takes the job for admitted. So a
// finalizer of our own keeps the Workload until another one, its remainder, is charged in its
// place. A remainder belongs to the ClusterQueue that it is charged to, so that no job can take it
// for its own, and is deleted with the last of the pods that it is for.
package placeholder

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

const (
	// Finalizer keeps the Workload of a copy that MultiKueue made until its remainder is charged.
	Finalizer = "kueue-trainer.dev/quota"

	// Label is on a remainder: the name of the TrainJob whose pods are left.
	Label = "kueue-trainer.dev/remainder-of"

	// RunsAnnotation is on a remainder: the UIDs of the JobSets whose pods it is charged for.
	RunsAnnotation = "kueue-trainer.dev/jobset-uids"

	// WorkloadAnnotation is on a remainder: the name of the Workload that these pods were admitted by, and say so themselves.
	WorkloadAnnotation = "kueue-trainer.dev/workload"

	// PodsLeft is the reason of what is true of a Workload that holds quota only for pods that are left.
	PodsLeft = "PodsLeft"
)

// nowhere is a resource that no ClusterQueue has.
const nowhere corev1.ResourceName = "kueue-trainer.dev/remainder"

// IsCopy reports whether MultiKueue made a Workload, as a copy of one in its manager cluster.
func IsCopy(wl *kueue.Workload) bool { return wl.Labels[kueue.MultiKueueOriginLabel] != "" }

// OfCopy reports whether a Workload is a copy, or was held as one before somebody changed its labels.
func OfCopy(wl *kueue.Workload) bool {
	return IsCopy(wl) || controllerutil.ContainsFinalizer(wl, Finalizer)
}

// Hold adds the finalizers that keep the Workload of a job which goes on, and reports whether one
// was missing.
func Hold(wl *kueue.Workload) bool {
	changed := controllerutil.AddFinalizer(wl, kueue.ResourceInUseFinalizerName)
	return IsCopy(wl) && controllerutil.AddFinalizer(wl, Finalizer) || changed
}

// Release removes what Hold adds, and reports whether there was any of it.
func Release(wl *kueue.Workload) bool {
	changed := controllerutil.RemoveFinalizer(wl, kueue.ResourceInUseFinalizerName)
	return controllerutil.RemoveFinalizer(wl, Finalizer) || changed
}

// NameOf returns the name of a Workload's remainder. Its own name may be asked for again.
func NameOf(wl *kueue.Workload) string { return "remainder-" + string(wl.UID) }

// Of returns the Workload that is charged to queue what wl is, for the pods that are left of the
// TrainJob job. It asks for what no ClusterQueue has, so that Kueue neither admits it nor preempts
// anybody for it before its status is written. It queues, or else Kueue would let nobody know when it
// goes.
func Of(wl *kueue.Workload, queue *kueue.ClusterQueue, job string, pods []corev1.Pod) *kueue.Workload {
	spec, runs := wl.DeepCopy().Spec, sets.New[string]()
	for i := range pods {
		runs.Insert(runOf(&pods[i]))
	}
	return &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: wl.Namespace, Name: NameOf(wl), Labels: map[string]string{Label: job},
			Annotations: map[string]string{RunsAnnotation: strings.Join(sets.List(runs), ","), WorkloadAnnotation: wl.Name},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: kueue.SchemeGroupVersion.String(), Kind: "ClusterQueue", Name: queue.Name, UID: queue.UID, Controller: ptr.To(true),
			}},
		},
		Spec: kueue.WorkloadSpec{
			PodSets: unfit(spec.PodSets), QueueName: spec.QueueName, Priority: spec.Priority, PriorityClassRef: spec.PriorityClassRef,
		},
	}
}

// Runs returns the UIDs of the JobSets whose pods a remainder is charged for; none of another
// Workload.
func Runs(rest *kueue.Workload) sets.Set[string] {
	runs := rest.Annotations[RunsAnnotation]
	if rest.Labels[Label] == "" || runs == "" {
		return nil
	}
	return sets.New(strings.Split(runs, ",")...)
}

// Former returns the Workload that a remainder is charged in the place of. That is gone: it has namespace and name alone.
func Former(rest *kueue.Workload) *kueue.Workload {
	return &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: rest.Namespace, Name: rest.Annotations[WorkloadAnnotation]}}
}

// PodsOf returns those of pods that a remainder is charged for.
func PodsOf(rest *kueue.Workload, pods []corev1.Pod) []corev1.Pod {
	runs := Runs(rest)
	return slices.DeleteFunc(slices.Clone(pods), func(pod corev1.Pod) bool { return !runs.Has(runOf(&pod)) })
}

// Charge returns the status of the remainder of wl: with it, Kueue counts that as admitted to the
// same quota. Its admission checks are as they were, so that nobody provisions for it.
func Charge(wl *kueue.Workload) kueue.WorkloadStatus {
	status := wl.DeepCopy().Status
	reserved := apimeta.FindStatusCondition(status.Conditions, kueue.WorkloadQuotaReserved)
	conditions := []metav1.Condition{
		*reserved,
		asReserved(reserved, kueue.WorkloadAdmitted),
		// Nothing of it starts, so nobody waits for that.
		asReserved(reserved, kueue.WorkloadPodsReady),
	}
	if evicted := apimeta.FindStatusCondition(status.Conditions, kueue.WorkloadEvicted); evicted != nil {
		// Whoever preempted the job does not do so again.
		conditions = append(conditions, *evicted)
	}
	return kueue.WorkloadStatus{
		Admission: status.Admission, ReclaimablePods: status.ReclaimablePods, AdmissionChecks: status.AdmissionChecks, Conditions: conditions,
	}
}

// Uncharged returns the pods of JobSets that no other remainder is charged for.
func Uncharged(pods []corev1.Pod, others []kueue.Workload) []corev1.Pod {
	// Pods without a JobSet are somebody else's.
	charged := sets.New("")
	for i := range others {
		if apimeta.IsStatusConditionTrue(others[i].Status.Conditions, kueue.WorkloadQuotaReserved) {
			charged = charged.Union(Runs(&others[i]))
		}
	}
	return slices.DeleteFunc(slices.Clone(pods), func(pod corev1.Pod) bool { return charged.Has(runOf(&pod)) })
}

// runOf returns the UID of a pod's JobSet; empty for a pod that JobSet did not make.
func runOf(pod *corev1.Pod) string { return pod.Labels[jobsetapi.JobSetUIDKey] }

// unfit has the first of the pods ask for a resource that there is not, and for more of it than its
// limit, which Kueue refuses also where it ignores what a ClusterQueue does not have.
func unfit(podSets []kueue.PodSet) []kueue.PodSet {
	if len(podSets) == 0 || len(podSets[0].Template.Spec.Containers) == 0 {
		return podSets
	}
	resources := &podSets[0].Template.Spec.Containers[0].Resources
	if resources.Requests == nil {
		resources.Requests = corev1.ResourceList{}
	}
	if resources.Limits == nil {
		resources.Limits = corev1.ResourceList{}
	}
	resources.Requests[nowhere] = *resource.NewQuantity(1, resource.DecimalSI)
	resources.Limits[nowhere] = *resource.NewQuantity(0, resource.DecimalSI)
	return podSets
}

// asReserved returns a condition that holds for as long as the quota has been reserved: by that
// time Kueue chooses whom it preempts.
func asReserved(reserved *metav1.Condition, condition string) metav1.Condition {
	return metav1.Condition{
		Type: condition, Status: metav1.ConditionTrue, LastTransitionTime: reserved.LastTransitionTime,
		Reason: PodsLeft, Message: "Pods are left of a TrainJob that is gone from here",
	}
}
