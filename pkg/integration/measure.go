// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobmetrics"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/ledger"
	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/pkg/webhookconfig"
)

// admittedBy returns the queue that admitted a Workload.
func admittedBy(wl *kueue.Workload) metrics.Queue {
	queue := metrics.Queue{Namespace: wl.Namespace, LocalQueue: string(wl.Spec.QueueName)}
	if wl.Status.Admission != nil {
		queue.ClusterQueue = string(wl.Status.Admission.ClusterQueue)
	}
	return queue
}

// measureStart records the start of a job that this reconcile made. How long it took after the
// admission is told of the first start alone: others wait for whoever stopped the job meanwhile.
func measureStart(j *job) {
	wl := j.holdingQuota()
	if wl == nil {
		// It is being taken back already.
		return
	}
	queue, admitted := admittedBy(wl), admittedAt(wl)
	kind := metrics.StartFirst
	former := j.record.run
	again := !former.began.IsZero()
	j.record.run = run{queue: queue, admitted: admitted, began: time.Now()}
	if again || apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadEvicted) != nil {
		kind = metrics.StartAgain
	}
	j.deps.metrics.Started(queue, kind)
	if !again || !admitted.Equal(former.admitted) {
		j.deps.metrics.StartedAfter(queue, time.Since(admitted))
	}
}

func admittedAt(wl *kueue.Workload) time.Time {
	if admitted := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadAdmitted); admitted != nil {
		return admitted.LastTransitionTime.Time
	}
	return time.Now()
}

// measureReady records how long it took until the pods of a job were ready, once for each run.
func measureReady(j *job, ready func() bool) {
	if j.IsSuspended() {
		return
	}
	switch known := &j.record.run; {
	case !known.underWay():
		if wl := j.holdingQuota(); wl != nil && kueuelib.IsAdmitted(wl) {
			*known = run{queue: admittedBy(wl), admitted: admittedAt(wl), began: resumedAt(&j.TrainJob, wl), ready: ready()}
		}
	case !known.ready && ready():
		known.ready = true
		j.deps.metrics.Ready(known.queue, time.Since(known.began))
	}
}

// resumedAt returns when Trainer took note of a start that another process made.
func resumedAt(job *trainjob.TrainJob, wl *kueue.Workload) time.Time {
	if said := apimeta.FindStatusCondition(job.Status.Conditions, trainer.TrainJobSuspended); said != nil && said.Status == metav1.ConditionFalse {
		return said.LastTransitionTime.Time
	}
	return admittedAt(wl)
}

// measureStop records that the manager suspended a job that ran.
func measureStop(j *job, reason string) {
	known := &j.record.run
	queue := known.queue
	if wl := j.holdingQuota(); wl != nil {
		queue = admittedBy(wl)
	} else if !known.underWay() {
		queue = metrics.Queue{Namespace: j.Namespace, LocalQueue: string(jobframework.QueueNameForObject(&j.TrainJob))}
	}
	known.over = !known.began.IsZero()
	j.deps.metrics.Stopped(queue, reason)
}

// measureStopped records the stop of a job that is found suspended though it was not known to be: by
// its user, or by the manager, which has not heard of its own success.
func measureStopped(_ context.Context, j *job) result {
	if !j.record.run.underWay() || !j.IsSuspended() {
		return result{}
	}
	reason := metrics.StopByUser
	if wl := j.holdingQuota(); wl != nil && kueuelib.IsEvicted(wl) {
		reason = state.ReasonOf(wl, kueue.WorkloadEvicted)
	}
	measureStop(j, reason)
	return result{}
}

// stopReason returns the word of the metrics for why jobframework stops a job.
func stopReason(j *job, reason jobframework.StopReason) string {
	switch reason {
	case jobframework.StopReasonWorkloadEvicted:
		if wl := j.holdingQuota(); wl != nil && kueuelib.IsEvicted(wl) {
			return state.ReasonOf(wl, kueue.WorkloadEvicted)
		}
	case jobframework.StopReasonWorkloadDeleted:
		return metrics.StopWorkloadDeleted
	case jobframework.StopReasonNoMatchingWorkload:
		return metrics.StopNoMatchingWorkload
	}
	return metrics.StopNotAdmitted
}

// measureWorkloads records how long evicted jobs had pods after that, until their quota was given back, and how long jobs
// ran, once for each that ends while this process looks: what has ended before it began to is none of its updates. It
// filters nothing.
func measureWorkloads(recorder *metrics.Recorder) predicate.Predicate {
	runs := func(wl *kueue.Workload) {
		if ledger.OfTrainJob(wl) && kueuelib.IsAdmitted(wl) && !kueuelib.IsFinished(wl) {
			recorder.Runs(admittedBy(wl))
		}
	}
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool {
			runs(e.Object.(*kueue.Workload))
			return true
		},
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, after := e.ObjectOld.(*kueue.Workload), e.ObjectNew.(*kueue.Workload)
			runs(after)
			if ledger.OfTrainJob(after) && before.DeletionTimestamp.IsZero() && kueuelib.IsAdmitted(before) && kueuelib.IsEvicted(before) &&
				!kueuelib.HasQuotaReservation(after) && !kueuelib.IsFinished(after) {
				recorder.Gone(admittedBy(before), time.Since(state.StoppedSince(before)))
			}
			if ran, ended := kueuelib.RanFor(after); ended && ledger.OfTrainJob(after) && !kueuelib.IsFinished(before) {
				recorder.Ended(admittedBy(after), ran)
			}
			return true
		},
	}
}

// tellMetrics registers what is found out at each scrape: what TrainJobs there are, and what this replica goes by.
func tellMetrics(mgr ctrl.Manager, deps *dependencies, scope *webhookconfig.Scope) {
	counts := &jobmetrics.Counts{Cached: mgr.GetClient(), Leads: mgr.Elected(), StuckReason: deps.Recorder.StuckReason, Labels: deps.metrics.QueueLabels, Managed: deps.queues.ManagesNamespace}
	deps.metrics.Register(
		metrics.NewScraped(counts.Tell, metrics.TrainJobs, metrics.StuckTrainJobs, metrics.GatedPods),
		metrics.NewScraped(func(tell metrics.Tell) {
			if version, err := deps.trainer.Served(); err == nil {
				tell(metrics.TrainerInfo, 1, version.String())
			}
			holds := deps.inTree.State()
			for _, state := range []string{metrics.InTreeActive, metrics.InTreeOff, metrics.InTreeUnknown} {
				tell(metrics.InTree, metrics.OneIf(state == holds), state)
			}
			tell(metrics.KueueConfigurationRead, metrics.OneIf(deps.kueue.Readable()))
			for _, differs := range deps.kueue.Differ() {
				tell(metrics.SettingDiffers, 1, differs.Setting)
			}
			if all, known := scope.All(); known {
				tell(metrics.WebhooksEveryTrainJob, metrics.OneIf(all))
			}
		}, metrics.TrainerInfo, metrics.InTree, metrics.KueueConfigurationRead, metrics.SettingDiffers, metrics.WebhooksEveryTrainJob))
}

// facts says for people what tellMetrics tells.
func facts(deps *dependencies, scope *webhookconfig.Scope) []string {
	trainer, asked, kueue := "unknown", "known to the leader alone", "cannot be read; what was read last holds, or Kueue's defaults"
	if version, err := deps.trainer.Served(); err == nil {
		trainer = version.String()
	}
	if all, known := scope.All(); known && all {
		asked = "every TrainJob"
	} else if known {
		asked = "TrainJobs with a queue"
	}
	if deps.kueue.Readable() {
		kueue = "read, as of resourceVersion " + deps.kueue.Version()
	}
	for _, differs := range deps.kueue.Differ() {
		kueue += "; overridden: " + differs.Setting
	}
	return []string{
		"Trainer: " + trainer,
		"in-tree integration: " + deps.inTree.State(),
		"Kueue's configuration: " + kueue,
		"webhooks are asked about: " + asked,
	}
}

// kueuesMetrics registers Kueue's metrics of jobs, which Kueue records, for other kinds, in its
// own process. They have the labels that Kueue's configuration gives them now; where that
// changes later they are those of this process's next start, as in Kueue.
func kueuesMetrics(ctx context.Context, queues cache.Cache, opts Options) (*kueuelib.CustomLabels, error) {
	labels, err := kueuelib.NewCustomLabels(opts.Kueue.Settings().CustomLabels)
	if err != nil {
		return nil, fmt.Errorf("giving Kueue's metrics the labels of its configuration: %w", err)
	}
	store := func(client.Object) {}
	if labels != nil {
		store = func(queue client.Object) { kueuelib.StoreQueue(labels, queue) }
	}
	opts.Metrics.Register(kueuelib.JobMetrics()...)
	opts.Metrics.There = isThere(ctx, queues)
	return labels, followQueues(ctx, queues, store, opts.Metrics)
}

// isThere reports of a LocalQueue whether a cache has it.
func isThere(ctx context.Context, cached client.Reader) func(namespace, name string) bool {
	return func(namespace, name string) bool {
		return !apierrors.IsNotFound(cached.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &kueue.LocalQueue{}))
	}
}

// followQueues has store called with every version of a ClusterQueue or LocalQueue, and drops what recorder and Kueue's
// metrics have of queues that are gone: tenants may make and delete LocalQueues for ever. What is stored of one that is
// gone stays: it is little, and a Workload may yet name it.
func followQueues(ctx context.Context, queues cache.Informers, store func(client.Object), recorder *metrics.Recorder) error {
	handler := toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(queue any) { store(queue.(client.Object)) },
		UpdateFunc: func(_, queue any) { store(queue.(client.Object)) },
		DeleteFunc: func(obj any) {
			if unseen, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
				obj = unseen.Obj
			}
			switch queue := obj.(type) {
			case *kueue.ClusterQueue:
				recorder.ForgetClusterQueue(queue.Name)
				kueuelib.ForgetClusterQueue(queue.Name)
			case *kueue.LocalQueue:
				recorder.ForgetLocalQueue(queue.Namespace, queue.Name)
				kueuelib.ForgetLocalQueue(queue.Namespace, queue.Name)
			}
		},
	}
	for _, kind := range []client.Object{&kueue.ClusterQueue{}, &kueue.LocalQueue{}} {
		informer, err := queues.GetInformer(ctx, kind)
		if err != nil {
			return fmt.Errorf("caching %T: %w", kind, err)
		}
		if _, err := informer.AddEventHandler(handler); err != nil {
			return fmt.Errorf("following %T: %w", kind, err)
		}
	}
	return nil
}
