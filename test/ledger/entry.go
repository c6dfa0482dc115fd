// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/constants"
	"sigs.k8s.io/kueue/pkg/controller/constants"
	"sigs.k8s.io/kueue/pkg/resources"
	"sigs.k8s.io/kueue/pkg/workload"

	"github.com/kueue-trainer/kueue-trainer/test/record"
)

// entry is what matters of a version. Entries are kept, versions are not: a spec may see
// a hundred thousand of them.
type entry struct {
	rv      uint64
	at      time.Time
	deleted bool
	kind    string
	uid     types.UID
	name    string
	// owner is the controller among its owners, or one that a job would have.
	owner *metav1.OwnerReference

	// One of these is set, depending on the kind.
	pod        *pod
	workload   *charge
	queue      *kueue.ClusterQueueSpec
	cohort     *kueue.CohortSpec
	nodeLabels map[string]string
	// localQueue is the queue of a TrainJob, clusterQueue that of a LocalQueue.
	localQueue, clusterQueue string
}

// pod is what a pod asks for, and where it is.
type pod struct {
	node         string
	ended        bool
	podSet       string
	clusterQueue string
	requests     map[corev1.ResourceName]int64
}

// charge is what Kueue counts for a Workload.
type charge struct {
	clusterQueue string
	// reserved is whether it holds quota, active whether Kueue counts it.
	reserved, active bool
	usage            map[resources.FlavorResource]int64
	// flavors are those assigned to the resources of each PodSet.
	flavors map[string]map[corev1.ResourceName]string
}

// read returns the entry of a version.
func read(v record.Version) (entry, error) {
	obj := v.Object
	e := entry{
		rv: v.RV, at: v.At, deleted: v.Deleted,
		kind: obj.GetKind(), uid: obj.GetUID(), name: obj.GetName(), owner: ownerOf(obj.GetKind(), obj.GetOwnerReferences()),
	}
	if v.Deleted {
		return e, nil
	}
	switch e.kind {
	case "Pod":
		return e, readPod(obj.Object, &e)
	case "Workload":
		return e, readWorkload(obj.Object, &e)
	case "ClusterQueue":
		cq, err := as[kueue.ClusterQueue](obj.Object)
		e.queue = &cq.Spec
		return e, err
	case "Cohort":
		cohort, err := as[kueue.Cohort](obj.Object)
		e.cohort = &cohort.Spec
		return e, err
	case "ResourceFlavor":
		flavor, err := as[kueue.ResourceFlavor](obj.Object)
		e.nodeLabels = flavor.Spec.NodeLabels
		return e, err
	case "LocalQueue":
		queue, err := as[kueue.LocalQueue](obj.Object)
		e.clusterQueue = string(queue.Spec.ClusterQueue)
		return e, err
	case "Node":
		e.nodeLabels = obj.GetLabels()
	case "TrainJob":
		e.localQueue = obj.GetLabels()[constants.QueueLabel]
	}
	return e, nil
}

// as converts an object to its type.
func as[T any](obj map[string]any) (typed T, err error) {
	err = runtime.DefaultUnstructuredConverter.FromUnstructured(obj, &typed)
	return typed, err
}

func readPod(obj map[string]any, e *entry) error {
	p, err := as[corev1.Pod](obj)
	if err != nil {
		return err
	}
	// Every pod asks for one pod, and many for nothing else.
	requests := map[corev1.ResourceName]int64{corev1.ResourcePods: 1}
	maps.Copy(requests, resources.ToMap(resources.NewRequestsFromPodSpec(&p.Spec)))
	e.pod = &pod{
		node:         p.Spec.NodeName,
		ended:        p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed,
		podSet:       p.Labels[jobsetapi.ReplicatedJobNameKey],
		clusterQueue: p.Labels[kueueconstants.ClusterQueueLabel],
		requests:     requests,
	}
	return nil
}

// readWorkload counts with Kueue's own code.
func readWorkload(obj map[string]any, e *entry) error {
	wl, err := as[kueue.Workload](obj)
	if err != nil {
		return err
	}
	active := workload.IsActive(&wl)
	// What it would count for, were it active.
	wl.Spec.Active = nil
	e.workload = &charge{active: active, reserved: workload.HasActiveQuotaReservation(&wl) && wl.Status.Admission != nil}
	if wl.Status.Admission == nil {
		return nil
	}
	e.workload.clusterQueue = string(wl.Status.Admission.ClusterQueue)
	e.workload.usage = map[resources.FlavorResource]int64{}
	for slot, amount := range workload.NewInfo(&wl).FlavorResourceUsage() {
		e.workload.usage[slot] = amount.Int64()
	}
	e.workload.flavors = map[string]map[corev1.ResourceName]string{}
	for _, assignment := range wl.Status.Admission.PodSetAssignments {
		of := map[corev1.ResourceName]string{}
		for resource, flavor := range assignment.Flavors {
			of[resource] = string(flavor)
		}
		e.workload.flavors[string(assignment.Name)] = of
	}
	return nil
}

// leadsTo are the kinds on the way from a pod to its TrainJob. Anything else that names a TrainJob as its owner, a
// JobSet or a pod of somebody's making, is nobody's to charge.
var leadsTo = map[string]string{"Pod": "Job", "Job": "JobSet", "JobSet": "TrainJob", "Workload": "TrainJob"}

// ownerOf returns the owner that leads from a pod to its TrainJob: the controller, or what has no controller beside it.
func ownerOf(kind string, owners []metav1.OwnerReference) *metav1.OwnerReference {
	at := slices.IndexFunc(owners, func(o metav1.OwnerReference) bool { return ptr.Deref(o.Controller, false) })
	if at < 0 {
		at = slices.IndexFunc(owners, func(o metav1.OwnerReference) bool { return o.Kind == leadsTo[kind] })
	}
	if at < 0 || owners[at].Kind != leadsTo[kind] {
		return nil
	}
	return &owners[at]
}
