// SPDX-License-Identifier: Apache-2.0

// Package ledger watches whether the pods of queued TrainJobs stay within the quota that
// their jobs are charged for: Kueue counts Workloads, and the truth is the pods.
package ledger

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/constants"
	"sigs.k8s.io/kueue/pkg/controller/constants"
	"sigs.k8s.io/kueue/pkg/resources"
	"sigs.k8s.io/kueue/pkg/workload"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/record"
)

// Kinds returns what has to be recorded for a check of some namespaces: who runs, who is charged and for what.
func Kinds(namespaces ...string) (kinds []record.Kind) {
	add := func(namespace string, of schema.GroupVersion, resources ...string) {
		for _, resource := range resources {
			kinds = append(kinds, record.Kind{GroupVersionResource: of.WithResource(resource), Namespace: namespace})
		}
	}
	add("", kueue.SchemeGroupVersion, "clusterqueues", "cohorts", "resourceflavors")
	add("", corev1.SchemeGroupVersion, "nodes")
	for _, namespace := range namespaces {
		add(namespace, corev1.SchemeGroupVersion, "pods")
		add(namespace, batchv1.SchemeGroupVersion, "jobs")
		add(namespace, jobsetapi.SchemeGroupVersion, "jobsets")
		add(namespace, trainjob.GVK.GroupVersion(), "trainjobs")
		add(namespace, kueue.SchemeGroupVersion, "workloads", "localqueues")
	}
	return kinds
}

// Ledger records what goes on in some namespaces.
type Ledger struct {
	recorder *record.Recorder
	cancel   context.CancelFunc

	mu      sync.Mutex
	entries []entry
	err     error
}

// Watch records until Close.
func Watch(ctx context.Context, api dynamic.Interface, namespaces ...string) (*Ledger, error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	l := &Ledger{cancel: cancel}
	var err error
	if l.recorder, err = record.Start(ctx, api, Kinds(namespaces...), l.take); err != nil {
		cancel()
		return nil, err
	}
	return l, nil
}

func (l *Ledger) take(v record.Version) {
	apply, err := read(v)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil && l.err == nil {
		l.err = fmt.Errorf("%s: %w", v, err)
	}
	l.entries = append(l.entries, entry{v.RV, v.At, v.Object.GetUID(), v.Deleted, apply})
}

// CaughtUp reports, by an error, whether a version is still on its way.
func (l *Ledger) CaughtUp(ctx context.Context) error { return l.recorder.CaughtUp(ctx) }

// Close ends the watches.
func (l *Ledger) Close() { l.cancel() }

// Check returns what was found up to now.
func (l *Ledger) Check() (Result, error) {
	gaps := l.recorder.Gaps()
	l.mu.Lock()
	defer l.mu.Unlock()
	return check(l.entries, gaps), l.err
}

// entry is what matters of a version. Entries are kept, versions are not: a spec may see a hundred thousand of them.
type entry struct {
	rv      uint64
	at      time.Time
	uid     types.UID
	deleted bool
	// apply makes of the state what it is from this version on.
	apply func(*state)
}

type pod struct {
	name         string
	owner        types.UID
	node         string
	ended        bool
	podSet       string
	clusterQueue string
	requests     map[corev1.ResourceName]int64
}

// charge is what Kueue counts for a Workload.
type charge struct {
	name         string
	job          types.UID
	clusterQueue string
	// reserved is whether it holds quota, active whether Kueue counts it.
	reserved, active bool
	usage            map[slot]int64
	// flavors are those assigned to the resources of each PodSet.
	flavors map[string]map[corev1.ResourceName]kueue.ResourceFlavorReference
}

func read(v record.Version) (func(*state), error) {
	obj, uid, name := v.Object, v.Object.GetUID(), v.Object.GetName()
	kind, owner := obj.GetKind(), ownerOf(obj)
	if v.Deleted {
		return func(s *state) {
			delete(s.pods, uid)
			delete(s.workloads, uid)
			s.gone[uid] = kind == "JobSet"
		}, nil
	}
	switch kind {
	case "Pod":
		p, err := as[corev1.Pod](obj)
		read := readPod(&p, owner)
		return func(s *state) { s.applyPod(uid, read) }, err
	case "Workload":
		wl, err := as[kueue.Workload](obj)
		read := readWorkload(&wl, owner)
		return func(s *state) { s.workloads[uid] = read }, err
	case "ClusterQueue":
		cq, err := as[kueue.ClusterQueue](obj)
		return func(s *state) { s.queues[name] = &cq.Spec }, err
	case "Cohort":
		cohort, err := as[kueue.Cohort](obj)
		return func(s *state) { s.cohorts[kueue.CohortReference(name)] = &cohort.Spec }, err
	case "ResourceFlavor":
		flavor, err := as[kueue.ResourceFlavor](obj)
		return func(s *state) { s.flavors[name] = append(s.flavors[name], flavor.Spec.NodeLabels) }, err
	case "LocalQueue":
		queue, err := as[kueue.LocalQueue](obj)
		return func(s *state) { s.localQueues[name] = string(queue.Spec.ClusterQueue) }, err
	case "Node":
		labels := obj.GetLabels()
		return func(s *state) { s.nodes[name] = labels }, nil
	case "TrainJob":
		queue := obj.GetLabels()[constants.QueueLabel]
		return func(s *state) { s.trainJobs[uid], s.names[uid] = queue, name }, nil
	}
	return func(s *state) { s.applyOwner(uid, owner) }, nil
}

func as[T any](obj *unstructured.Unstructured) (typed T, err error) {
	err = runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, &typed)
	return typed, err
}

func readPod(p *corev1.Pod, owner types.UID) *pod {
	// Every pod asks for one pod, and many for nothing else.
	requests := map[corev1.ResourceName]int64{corev1.ResourcePods: 1}
	maps.Copy(requests, resources.ToMap(resources.NewRequestsFromPodSpec(&p.Spec)))
	return &pod{
		name:         p.Name,
		owner:        owner,
		node:         p.Spec.NodeName,
		ended:        p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed,
		podSet:       p.Labels[jobsetapi.ReplicatedJobNameKey],
		clusterQueue: p.Labels[kueueconstants.ClusterQueueLabel],
		requests:     requests,
	}
}

// readWorkload counts with Kueue's own code.
func readWorkload(wl *kueue.Workload, owner types.UID) *charge {
	c := &charge{name: wl.Name, job: owner, active: workload.IsActive(wl)}
	admission := wl.Status.Admission
	if admission == nil {
		return c
	}
	// What it would count for, were it active.
	wl.Spec.Active = nil
	c.reserved, c.clusterQueue = workload.HasActiveQuotaReservation(wl), string(admission.ClusterQueue)
	c.usage, c.flavors = map[slot]int64{}, map[string]map[corev1.ResourceName]kueue.ResourceFlavorReference{}
	for of, amount := range workload.NewInfo(wl).FlavorResourceUsage() {
		c.usage[slot{c.clusterQueue, string(of.Flavor), of.Resource}] = amount.Int64()
	}
	for _, assignment := range admission.PodSetAssignments {
		c.flavors[string(assignment.Name)] = assignment.Flavors
	}
	return c
}

// leadsTo are the kinds on the way from a pod to its TrainJob. Anything else that names a TrainJob as its owner, a
// JobSet or a pod of somebody's making, is nobody's to charge.
var leadsTo = map[string]string{"Pod": "Job", "Job": "JobSet", "JobSet": "TrainJob", "Workload": "TrainJob"}

// ownerOf returns the owner that leads from a pod to its TrainJob, if there is one: the controller, or what has no
// controller beside it.
func ownerOf(obj *unstructured.Unstructured) types.UID {
	kind, owners := leadsTo[obj.GetKind()], obj.GetOwnerReferences()
	at := slices.IndexFunc(owners, func(o metav1.OwnerReference) bool { return ptr.Deref(o.Controller, false) })
	if at < 0 {
		at = slices.IndexFunc(owners, func(o metav1.OwnerReference) bool { return o.Kind == kind })
	}
	if at < 0 || owners[at].Kind != kind {
		return ""
	}
	return owners[at].UID
}
