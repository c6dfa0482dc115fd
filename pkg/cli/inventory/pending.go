// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	configapi "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib/scheduler"
	"github.com/kueue-trainer/kueue-trainer/pkg/placeholder"
)

// Pending returns the Workloads that wait for quota: those that are active, not finished and hold none.
func (i *Inventory) Pending() (pending []*kueue.Workload) {
	for n := range i.Workloads {
		if wl := &i.Workloads[n]; kueuelib.IsAdmissible(wl) {
			pending = append(pending, wl)
		}
	}
	return pending
}

// ClusterQueueOf is the one that a Workload has quota of or, before that, its LocalQueue's; empty where that does not exist or
// could not be listed.
func (i *Inventory) ClusterQueueOf(wl *kueue.Workload) kueue.ClusterQueueReference {
	if wl.Status.Admission != nil {
		return wl.Status.Admission.ClusterQueue
	}
	if queue := i.LocalQueue(wl.Namespace, wl.Spec.QueueName); queue != nil {
		return queue.Spec.ClusterQueue
	}
	return ""
}

// InQueue reports whether Kueue would look at a Workload that waits as things are.
func (i *Inventory) InQueue(wl *kueue.Workload, now time.Time) bool {
	queue := i.LocalQueue(wl.Namespace, wl.Spec.QueueName)
	retry := wl.Status.RequeueState
	return queue != nil && ptr.Deref(queue.Spec.StopPolicy, kueue.None) == kueue.None &&
		!apimeta.IsStatusConditionFalse(wl.Status.Conditions, kueue.WorkloadRequeued) &&
		(retry == nil || retry.RequeueAt == nil || !retry.RequeueAt.After(now)) &&
		!kueuelib.HasRetryChecks(wl) && !kueuelib.HasRejectedChecks(wl) && !scheduler.IsNamespaceMismatch(wl)
}

// JobName is the job, "namespace/name", of a Workload, or itself where it has none.
func JobName(wl *kueue.Workload) string {
	name := wl.Name
	if len(wl.OwnerReferences) > 0 {
		name = wl.OwnerReferences[0].Name
	}
	return wl.Namespace + "/" + cmp.Or(wl.Labels[placeholder.Label], name)
}

// Demand sums what pending Workloads ask of a resource that they could get in a flavor:
// their ClusterQueue has quota for it there and no node selector, affinity or taint stands
// against. One that could run in several flavors counts in each. counts is of Kueue's configuration, or nil.
func (i *Inventory) Demand(flavor *kueue.ResourceFlavor, name corev1.ResourceName, counts *configapi.Resources) resource.Quantity {
	var sum int64
	for _, wl := range i.Pending() {
		if cq := i.ClusterQueue(i.ClusterQueueOf(wl)); cq == nil || QuotaOf(cq.Spec.ResourceGroups, kueue.ResourceFlavorReference(flavor.Name), name) == nil {
			continue
		}
		for n, requests := range kueuelib.TotalRequests(WithRequests(wl), counts) {
			if !Refuses(flavor, &wl.Spec.PodSets[n].Template.Spec) {
				sum = kueuelib.Sum(sum, requests.Requests.ResourceValue(name))
			}
		}
	}
	return kueuelib.NewResourceFormatter().ResourceQuantity(name, sum)
}

// WithRequests returns a copy of wl as Kueue queues it, where a limit without a request is
// one: Workloads of TrainJobs, unlike pods, are stored as the user wrote them.
func WithRequests(wl *kueue.Workload) *kueue.Workload {
	wl = wl.DeepCopy()
	for n := range wl.Spec.PodSets {
		kueuelib.UseLimitsAsMissingRequests(&wl.Spec.PodSets[n].Template.Spec)
	}
	return wl
}

// SetOverhead has PodSets ask for what their RuntimeClasses take beside the containers. Kueue does so in memory, and the API
// server in pods.
func (i *Inventory) SetOverhead(podSets []kueue.PodSet) {
	for n := range podSets {
		pod := &podSets[n].Template.Spec
		class := i.RuntimeClass(pod)
		if class != nil && class.Overhead != nil && len(pod.Overhead) == 0 {
			pod.Overhead = class.Overhead.PodFixed
		}
	}
}

// RuntimeClass is that of a pod; nil for none, and for one that is not there or not to be seen.
func (i *Inventory) RuntimeClass(pod *corev1.PodSpec) *nodev1.RuntimeClass {
	return Find(i.RuntimeClasses, "", ptr.Deref(pod.RuntimeClassName, ""))
}

// Refuses reports whether Kueue would not put pods into a flavor whatever quota is left: it has
// a taint in its nodeTaints that neither they nor it tolerate, or they a node selector or
// affinity against its nodeLabels, as far as it has labels of those keys.
func Refuses(flavor *kueue.ResourceFlavor, pod *corev1.PodSpec) bool {
	return !Selects(pod, flavor) || Untolerated(flavor.Spec.NodeTaints, slices.Concat(pod.Tolerations, flavor.Spec.Tolerations)) != nil
}

// Untolerated returns the first taint that keeps pods with these tolerations from being scheduled, or nil.
func Untolerated(all []corev1.Taint, tolerations []corev1.Toleration) *corev1.Taint {
	if taint, found := corev1helpers.FindMatchingUntoleratedTaint(klog.Background(), all, tolerations, kueuelib.IsSchedulingTaint, true); found {
		return &taint
	}
	return nil
}

// Selects reports whether the node selector and affinity of pods go with a flavor, as
// Kueue looks at them: keys that the flavor has no label for do not count.
func Selects(pod *corev1.PodSpec, flavor *kueue.ResourceFlavor) bool {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: flavor.Spec.NodeLabels}}
	match, err := scheduler.FlavorSelector(pod, sets.KeySet(flavor.Spec.NodeLabels)).Match(node)
	return match && err == nil
}
