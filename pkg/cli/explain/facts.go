// SPDX-License-Identifier: Apache-2.0

// Package explain tells why a TrainJob waits, where it will land and who set what.
//
// Facts are what was read of a TrainJob and of the cluster around it; everything else is pure: StateOf tells the state in
// one sentence, Flavors what every flavor can do for it, and Explain all that there is to say.
package explain

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	configapi "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/pkg/gpu"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch/provenance"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// patience is how long a controller may take to do its next step before people are told that it does not.
const patience = 15 * time.Second

// Facts is what was read of one TrainJob. What is empty is not there, unless Unseen or Cluster name its kind.
type Facts struct {
	Around

	Job       *trainjob.TrainJob
	Workload  *kueue.Workload   // Kueue's record of the job; nil while it has none
	JobSet    *jobsetapi.JobSet // what Trainer made of the job, Jobs are what JobSet made of that
	Jobs      []batchv1.Job
	Pods      []corev1.Pod   // those of the Jobs, the ones on their way out included
	Warnings  []corev1.Event // warning events about the job and what was made of it, the latest first
	PodEvents []corev1.Event // what kubelets say of pods that they make, the latest first

	Fields      []provenance.Field // the values of the rendered JobSet with their owners
	PodSets     []kueue.PodSet     // those of the Workload without pods that are done, or those that Kueue would see
	Undescribed error              // why there are no PodSets: a runtime that is missing, for one

	Namespace *corev1.Namespace // the job's; nil where the user may not see it
	Visible   *Position         // the position as Kueue reports it; nil where it has to be computed

	Replaces       bool     // set for a manifest of a TrainJob that there is: of that, no Workload is left in Cluster
	Priority       int32    // what a manifest's Workload would have, or that of a job if it had the class Supposed
	Supposed       string   // the WorkloadPriorityClass that the job does not have; empty for one as it is
	PriorityUnseen bool     // set where the user may not read the priority classes for that
	Uncopied       bool     // set in a worker that has the job's Workload, and not the TrainJob yet
	Workers        []Worker // the clusters that MultiKueue gave the job to, or may; those that were looked into
}

// queueName is the LocalQueue that the job asks for; empty for none.
func (f *Facts) queueName() string {
	return cmp.Or(string(ptr.Deref(f.Workload, kueue.Workload{}).Spec.QueueName), f.Job.Labels[kueueconstants.QueueLabel])
}

func (f *Facts) localQueue() *kueue.LocalQueue {
	return f.Cluster.LocalQueue(f.Job.Namespace, kueue.LocalQueueName(f.queueName()))
}

// clusterQueue is the one that holds the job's quota or, before that, its LocalQueue's.
func (f *Facts) clusterQueue() *kueue.ClusterQueue {
	return f.Cluster.ClusterQueue(f.clusterQueueName())
}

func (f *Facts) clusterQueueName() kueue.ClusterQueueReference {
	if f.Workload != nil && f.Workload.Status.Admission != nil {
		return f.Workload.Status.Admission.ClusterQueue
	}
	return ptr.Deref(f.localQueue(), kueue.LocalQueue{}).Spec.ClusterQueue
}

func (f *Facts) condition(name string) *metav1.Condition {
	return kueuelib.True(ptr.Deref(f.Workload, kueue.Workload{}).Status.Conditions, name)
}

func (f *Facts) warning(reasons ...string) *corev1.Event {
	return find(f.Warnings, func(e *corev1.Event) bool { return slices.Contains(reasons, e.Reason) })
}

// told is what such an event says that is about the present attempt to start; nil for none.
func (f *Facts) told(reasons ...string) *State {
	e := f.warning(reasons...)
	if e == nil || eventTime(e).Before(f.begun()) {
		return nil
	}
	return &State{Reason: e.Reason, Message: e.Message, Cause: e.Message, Stuck: true}
}

// begun is when the present attempt to start began: the admission or, before it, the creation.
func (f *Facts) begun() time.Time {
	return cmp.Or(f.conditionSince(kueue.WorkloadAdmitted), &f.Job.CreationTimestamp).Time
}

func (f *Facts) conditionSince(name string) *metav1.Time {
	return since(ptr.Deref(f.condition(name), metav1.Condition{}).LastTransitionTime)
}

func (f *Facts) livePods() []corev1.Pod {
	return picked(f.Pods, func(p corev1.Pod) bool { return !podset.PodEnded(&p) })
}

// Queues returns the LocalQueue that the job asks for and the ClusterQueue behind it; empty where there is none, or none seen.
func (f *Facts) Queues() (local, cluster string) {
	return f.queueName(), string(f.clusterQueueName())
}

// GPUs sums up the GPUs that the PodSets ask for.
func (f *Facts) GPUs() map[corev1.ResourceName]int64 {
	sum := sumOf(f.PodSets)
	maps.DeleteFunc(sum, func(name corev1.ResourceName, _ int64) bool { return !gpu.IsResource(name) })
	return sum
}

// assignments are what the job's PodSets were given; none without an admission.
func (f *Facts) assignments() []kueue.PodSetAssignment {
	return ptr.Deref(ptr.Deref(f.Workload, kueue.Workload{}).Status.Admission, kueue.Admission{}).PodSetAssignments
}

// Assigned names the flavors that the job has: those of its GPUs, where it has any.
func (f *Facts) Assigned() []string {
	var all, ofGPUs []string
	for _, assignment := range f.assignments() {
		for name, flavor := range assignment.Flavors {
			all = append(all, string(flavor))
			if gpu.IsResource(name) {
				ofGPUs = append(ofGPUs, string(flavor))
			}
		}
	}
	if len(ofGPUs) > 0 {
		all = ofGPUs
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// podSetsOf returns the PodSets of a Workload without pods that are done: also one that waits again asks for no more.
func podSetsOf(wl *kueue.Workload) []kueue.PodSet {
	podSets := slices.Clone(wl.Spec.PodSets)
	for i := range podSets {
		podSets[i].Count = max(0, podSets[i].Count-doneOf(wl, podSets[i].Name))
	}
	return podSets
}

// doneOf counts the pods of a PodSet whose quota was given back; none of a finished Workload, which tells what it has asked for.
func doneOf(wl *kueue.Workload, podSet kueue.PodSetReference) int32 {
	if wl == nil || kueuelib.IsFinished(wl) {
		return 0
	}
	done := find(wl.Status.ReclaimablePods, func(p *kueue.ReclaimablePod) bool { return p.Name == podSet })
	return ptr.Deref(done, kueue.ReclaimablePod{}).Count
}

// requestsOf returns what all pods of a PodSet ask for, in Kueue's units, as far as its configuration has it counted; nil is all.
func requestsOf(ps *kueue.PodSet, by *configapi.Resources) map[corev1.ResourceName]int64 {
	requests := perPodOf(ps, by)
	for name := range requests {
		requests[name] = kueuelib.Product(requests[name], int64(ps.Count))
	}
	return requests
}

// perPodOf is requestsOf of one pod. Limits count where there is no request.
func perPodOf(ps *kueue.PodSet, by *configapi.Resources) map[corev1.ResourceName]int64 {
	pod := ps.Template.Spec.DeepCopy()
	kueuelib.UseLimitsAsMissingRequests(pod)
	requests := map[corev1.ResourceName]int64{} // Of a pod that asks for nothing, Kueue has no map.
	maps.Copy(requests, kueuelib.ByResource(kueuelib.CountedOf(pod, by)))
	maps.DeleteFunc(requests, func(_ corev1.ResourceName, amount int64) bool { return amount <= 0 })
	return requests
}

func sumOf(podSets []kueue.PodSet) map[corev1.ResourceName]int64 {
	sum := map[corev1.ResourceName]int64{}
	for i := range podSets {
		for name, amount := range requestsOf(&podSets[i], nil) {
			if amount > 0 {
				sum[name] = kueuelib.Sum(sum[name], amount)
			}
		}
	}
	return sum
}

// number is an amount as kubectl prints it: 16, 500m, 64Gi.
func number(name corev1.ResourceName, amount int64) string {
	q := kueuelib.NewResourceFormatter().ResourceQuantity(name, amount)
	return q.String()
}

// quantity is number with what it is of: 8 GPUs, 64Gi memory.
func quantity(name corev1.ResourceName, amount int64) string {
	switch {
	case name == gpu.Whole:
		return show.Count(amount, "GPU")
	case name == corev1.ResourceCPU && amount%1000 == 0:
		return show.Count(amount/1000, "CPU")
	case name == corev1.ResourcePods:
		return show.Count(amount, "pod")
	case gpu.IsResource(name):
		return fmt.Sprintf("%d %s", amount, strings.TrimPrefix(string(name), "nvidia.com/"))
	}
	return number(name, amount) + " " + string(name)
}

// needs sums up what PodSets ask for, in words: the GPUs or, where there are none, everything.
func needs(podSets []kueue.PodSet) string {
	sum := sumOf(podSets)
	names := sortedResources(sum)
	if n := slices.IndexFunc(names, func(name corev1.ResourceName) bool { return !gpu.IsResource(name) }); n > 0 {
		names = names[:n]
	}
	parts := kueuelib.Map(names, func(name *corev1.ResourceName) string { return quantity(*name, sum[*name]) })
	return cmp.Or(strings.Join(parts, " and "), "nothing that has a quota")
}
