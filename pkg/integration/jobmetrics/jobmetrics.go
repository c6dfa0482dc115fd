// SPDX-License-Identifier: Apache-2.0

// Package jobmetrics counts, at each scrape of the metrics, the TrainJobs of queues by what they do (state.PhaseOf) and by what they
// are stuck with, and the pods at the gate, from caches alone, without copies of what is in them (this file). It measures runs
// (runs.go), and sets up what Kueue measures of other jobs in its own process (setup.go).
package jobmetrics

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobclient"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// timeout bounds a count that has to wait for caches, as the first one of a leader may.
const timeout = 5 * time.Second

// Counts counts TrainJobs and pods.
type Counts struct {
	// Cached reads the manager's caches.
	Cached client.Reader
	// Leads is closed when this process leads. Only the leader counts: sums over replicas are right.
	Leads <-chan struct{}
	// StuckReason returns the reason why a TrainJob is stuck; empty: it is not.
	StuckReason func(types.UID) string
	// Labels says which queues are told apart.
	Labels metrics.QueueLabels
	// Managed reports whether Kueue manages a namespace; nil: it manages all.
	Managed func(ctx context.Context, namespace string) (bool, error)
}

// Tell tells metrics.TrainJobs, metrics.StuckTrainJobs and metrics.GatedPods.
func (c *Counts) Tell(tell metrics.Tell) {
	select {
	case <-c.Leads:
	default:
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if err := c.tell(ctx, tell); err != nil {
		ctrl.Log.WithName("metrics").Error(err, "Could not count TrainJobs")
	}
}

func (c *Counts) tell(ctx context.Context, tell metrics.Tell) error {
	seen := &view{}
	for _, list := range []client.ObjectList{&seen.jobs, &seen.workloads, &seen.jobSets, &seen.queues, &seen.pods} {
		if err := c.Cached.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("listing %T: %w", list, err)
		}
	}
	gated := 0
	for i := range seen.pods.Items {
		if patch.HasAdmissionGate(seen.pods.Items[i].Spec.SchedulingGates) {
			gated++
		}
	}
	tell(metrics.GatedPods, float64(gated))
	unmanaged, err := c.unmanaged(ctx, seen)
	if err != nil {
		return err
	}
	states, stuck := seen.count(unmanaged, c.StuckReason, c.Labels)
	for of, n := range states {
		tell(metrics.TrainJobs, float64(n), of.ClusterQueue, of.Namespace, of.LocalQueue, of.word)
	}
	for of, n := range stuck {
		tell(metrics.StuckTrainJobs, float64(n), of.ClusterQueue, of.Namespace, of.LocalQueue, of.word)
	}
	return nil
}

// view is what there is, at one moment. Nobody may change it.
type view struct {
	jobs      trainjob.List
	workloads kueue.WorkloadList
	jobSets   jobsetapi.JobSetList
	queues    kueue.LocalQueueList
	pods      corev1.PodList
}

// unmanaged returns the namespaces that Kueue does not manage: who names a queue there waits for nobody.
func (c *Counts) unmanaged(ctx context.Context, seen *view) (map[string]bool, error) {
	out := map[string]bool{}
	if c.Managed == nil {
		return out, nil
	}
	for i := range seen.jobs.Items {
		namespace := seen.jobs.Items[i].Namespace
		if _, known := out[namespace]; known {
			continue
		}
		managed, err := c.Managed(ctx, namespace)
		if client.IgnoreNotFound(err) != nil {
			return nil, err
		}
		out[namespace] = !managed
	}
	return out, nil
}

// of is what TrainJobs are counted by: their queue, and a word for what they do.
type of struct {
	metrics.Queue
	word string
}

// count returns how many TrainJobs of queues there are by state, and by trouble.
func (v *view) count(unmanaged map[string]bool, trouble func(types.UID) string, labels metrics.QueueLabels) (states, stuck map[of]int) {
	states, stuck = map[of]int{}, map[of]int{}
	workloads, ended := v.workloadsByJob()
	jobSets := make(map[types.UID]*jobsetapi.JobSet, len(v.jobSets.Items))
	for i := range v.jobSets.Items {
		if owner := state.ControllerOfKind(&v.jobSets.Items[i], trainjob.GVK); owner != nil {
			jobSets[owner.UID] = &v.jobSets.Items[i]
		}
	}
	leads := make(map[types.NamespacedName]string, len(v.queues.Items))
	for i := range v.queues.Items {
		leads[client.ObjectKeyFromObject(&v.queues.Items[i])] = string(v.queues.Items[i].Spec.ClusterQueue)
	}
	for i := range v.jobs.Items {
		job := &v.jobs.Items[i]
		wl := workloads[job.UID]
		if wl == nil && (unmanaged[job.Namespace] || jobframework.QueueNameForObject(job) == "") {
			continue
		}
		if wl == nil && job.Suspended() && (ended.Has(job.UID) || jobclient.HasEnded(job)) {
			// Trainer forgot that it failed, with its JobSet.
			continue
		}
		word := state.PhaseOf(job, wl, jobSets[job.UID])
		if word == "" {
			continue
		}
		queue := queueOf(job, wl, leads)
		if !labels.LocalQueues {
			queue = metrics.Queue{ClusterQueue: queue.ClusterQueue}
		}
		states[of{queue, word}]++
		if reason := trouble(job.UID); reason != "" {
			stuck[of{queue, reason}]++
		}
	}
	return states, stuck
}

// workloadsByJob returns for each TrainJob the Workload that holds quota, or one that has not
// finished, and of which TrainJobs one says that they have ended.
func (v *view) workloadsByJob() (unfinished map[types.UID]*kueue.Workload, ended sets.Set[types.UID]) {
	unfinished, ended = make(map[types.UID]*kueue.Workload, len(v.workloads.Items)), sets.New[types.UID]()
	for i := range v.workloads.Items {
		wl := &v.workloads.Items[i]
		owner := state.ControllerOfKind(wl, trainjob.GVK)
		switch {
		case owner == nil:
		case state.Ended(wl):
			ended.Insert(owner.UID)
		case kueuelib.IsFinished(wl):
		case unfinished[owner.UID] == nil || !state.HoldsQuota(unfinished[owner.UID]):
			unfinished[owner.UID] = wl
		}
	}
	return unfinished, ended
}

// queueOf returns the queue of a TrainJob. A LocalQueue that is not there has no name: a tenant
// could make up any number of them.
func queueOf(job *trainjob.TrainJob, wl *kueue.Workload, leads map[types.NamespacedName]string) metrics.Queue {
	queue := metrics.Queue{Namespace: job.Namespace}
	name := string(jobframework.QueueNameForObject(job))
	if wl != nil {
		name = string(wl.Spec.QueueName)
	}
	if leadsTo, known := leads[types.NamespacedName{Namespace: job.Namespace, Name: name}]; known {
		queue.LocalQueue, queue.ClusterQueue = name, leadsTo
	}
	if wl != nil && wl.Status.Admission != nil {
		queue.ClusterQueue = string(wl.Status.Admission.ClusterQueue)
	}
	return queue
}
