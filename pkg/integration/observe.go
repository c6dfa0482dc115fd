// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"sync"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/config"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobclient"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobmetrics"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/podtracking"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/starts"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// observed is all that a reconcile of a TrainJob goes by.
type observed struct {
	trainjob.TrainJob

	// key names the job, also one that is gone.
	key types.NamespacedName
	// view is what there is of it.
	view state.View
	// manages is whether it is Kueue's to start, unmanaged is set in a namespace that Kueue does not manage, or where it does not
	// manage jobs without a queue any more: the job waits for nothing there, and has no gate.
	manages, unmanaged bool
	// record is what is remembered of it.
	record *record
}

// observe reads from the caches what a reconcile of a TrainJob goes by, jobframework included: nothing of it is read
// again. It returns errOldView where a newer version of a Workload is known to exist.
func (e *dependencies) observe(ctx context.Context, key types.NamespacedName) (*job, error) {
	view, err := state.Observe(ctx, e.client, key)
	if err != nil {
		return nil, err
	}
	e.ledger.Look(ctx, view.Workloads)
	if e.expectations.Outdated(key, view.Workloads) {
		return nil, errOldView
	}
	j := &job{deps: e, observed: observed{key: key, view: view}}
	// The client asks the API server before it calls a TrainJob missing. Without a Workload, nothing hangs on that.
	var reader client.Reader = e.client
	if len(view.Workloads) == 0 {
		reader = e.Cached
	}
	if err := reader.Get(ctx, key, &j.TrainJob); apierrors.IsNotFound(err) {
		j.TrainJob = trainjob.TrainJob{}
	} else if err != nil {
		return nil, err
	}
	j.record = e.records.of(key, j.UID)
	return j, nil
}

// observeNamespace finds out whether the job is Kueue's to start. One whose namespace is gone is about to be gone.
func observeNamespace(ctx context.Context, j *job) result {
	if j.UID == "" {
		return result{}
	}
	managed, err := j.deps.queues.ManagesNamespace(ctx, j.Namespace)
	if err == nil && !managed {
		j.unmanaged = true
	} else if err == nil {
		j.manages, err = j.deps.queues.Queued(ctx, &j.TrainJob)
		// Kueue managed jobs without a queue, and does not any more. Between the two writes of free, the JobSet alone tells.
		j.unmanaged = err == nil && !j.manages && jobframework.QueueName(j) == "" && !j.ManagedExternally() &&
			(patch.Patched(j.deps.Field, &j.Spec) || len(podset.FreedIn(j.jobSet())) > 0)
	}
	return ofError(client.IgnoreNotFound(err))
}

// What belongs to this very job, by its UID; state.View says more of each.
func (o *observed) workloads() []*kueue.Workload  { return o.view.WorkloadsOf(&o.TrainJob) }
func (o *observed) holdingQuota() *kueue.Workload { return o.view.HoldingQuota(&o.TrainJob) }
func (o *observed) jobSet() *jobsetapi.JobSet     { return o.view.JobSetOf(&o.TrainJob) }
func (o *observed) childJobs() []batchv1.Job      { return o.view.ChildJobsOf(&o.TrainJob) }

// pods returns what answers whether there are pods of the job.
func (j *job) pods() podtracking.Pods { return j.deps.podsIn(j.view) }

// podsIn returns what answers whether there are pods of TrainJobs, by a view of these.
func (e *dependencies) podsIn(view state.View) podtracking.Pods {
	return podtracking.Pods{View: view, Live: e.live, Expectations: e.expectations, Field: e.Field}
}

// loggerOf has events and log lines of a reconcile name the Workload of the job, if there is one.
func loggerOf(ctx context.Context, j *job) context.Context {
	log := ctrl.LoggerFrom(ctx)
	if workloads := j.view.Workloads; len(workloads) > 0 {
		last := workloads[0]
		for _, wl := range workloads {
			if !kueuelib.IsFinished(wl) {
				last = wl
			}
		}
		log = log.WithValues("workload", klog.KObj(last))
	}
	j.deps.Recorder = j.deps.Recorder.LoggingTo(log)
	return ctrl.LoggerInto(ctx, log)
}

// warn records a Warning about the job, which counts as stuck by it.
func (j *job) warn(reason, action, format string, args ...any) {
	j.deps.Recorder.Warn(&j.TrainJob, reason, action, fmt.Errorf(format, args...))
}

// tell records a Normal event about the job.
func (j *job) tell(reason, action, format string, args ...any) {
	j.deps.Recorder.Eventf(&j.TrainJob, nil, corev1.EventTypeNormal, reason, action, format, args...)
}

// tellOnce records why the manager does nothing for the job, once while that is so.
func (j *job) tellOnce(reason, action, message string) {
	j.note(reason)
	if j.record.told != reason {
		j.record.told = reason
		j.deps.Recorder.Resolve(j.UID, reason)
		j.warn(reason, action, "%s", message)
	}
}

// note has the job count as stuck by what was told before.
func (j *job) note(reason string) { j.deps.Recorder.Note(j.UID, reason) }

// frozen is the client of jobframework: it has the job and its Workloads as this reconcile observed them. A prebuilt
// Workload that has no owner yet is none of these.
type frozen struct {
	client.Client
	job *job
}

func (f frozen) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	switch into := obj.(type) {
	case *trainjob.TrainJob:
		if key == f.job.key && f.job.UID == "" {
			return apierrors.NewNotFound(jobclient.Resource, key.Name)
		}
		if into == &f.job.TrainJob {
			// Whatever was changed of this view before stays.
			return nil
		}
	case *kueue.Workload:
		for _, known := range f.job.view.Workloads {
			if client.ObjectKeyFromObject(known) == key {
				known.DeepCopyInto(into)
				return nil
			}
		}
	}
	return f.Client.Get(ctx, key, obj, opts...)
}

func (f frozen) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	workloads, is := list.(*kueue.WorkloadList)
	if !is || !f.asksForWorkloads(opts) {
		return f.Client.List(ctx, list, opts...)
	}
	workloads.Items = nil
	for _, known := range f.job.view.Workloads {
		if f.job.UID != "" && leftByFormer(f.job, known) && !controllerutil.ContainsFinalizer(known, kueue.ResourceInUseFinalizerName) {
			// It was let go, and somebody's finalizer keeps it: jobframework would take it for the job's.
			continue
		}
		workloads.Items = append(workloads.Items, *known.DeepCopy())
	}
	return nil
}

// asksForWorkloads reports whether a list is of the Workloads of TrainJobs of the job's name.
func (f frozen) asksForWorkloads(opts []client.ListOption) bool {
	var asked, own client.ListOptions
	asked.ApplyOptions(opts)
	own.ApplyOptions([]client.ListOption{client.InNamespace(f.job.key.Namespace), jobframework.OwnerReferenceIndexFieldMatcher(trainjob.GVK, f.job.key.Name)})
	return asked.Namespace == own.Namespace && asked.LabelSelector == nil && asked.FieldSelector != nil && asked.FieldSelector.String() == own.FieldSelector.String()
}

// record is what is remembered of a TrainJob from one look to the next. There is one look at a TrainJob at a time,
// which has the record to itself.
type record struct {
	uid     types.UID
	waiting waiting
	ended   jobEnd
	// alone is set for a copy that was seen without a pod of another one of its name.
	alone bool
	run   jobmetrics.Run
	start starts.Record
	// former is the status that its former cluster left.
	former *trainer.TrainJobStatus
	// compared are the child Jobs that are known to ask for no more than the admission gives.
	compared *sets.Set[types.UID]
	// lacks is since when the job cannot queue for lack of a priority class or its prebuilt Workload.
	lacks time.Time
	// told is the reason why the manager does nothing for the job, where it was told.
	told string
}

// records are those of all TrainJobs, by name.
type records struct{ sync.Map }

// of returns the record of a TrainJob. What is gone has none.
func (r *records) of(key types.NamespacedName, uid types.UID) *record {
	fresh := &record{uid: uid}
	if uid == "" {
		return fresh
	}
	if known, _ := r.LoadOrStore(key, fresh); known.(*record).uid == uid {
		return known.(*record)
	}
	r.Store(key, fresh)
	return fresh
}

// trim forgets a record that says nothing.
func (r *records) trim(key types.NamespacedName) {
	if known, ok := r.Load(key); ok && *known.(*record) == (record{uid: known.(*record).uid}) {
		r.Delete(key)
	}
}

// waiting is since when a TrainJob waits to queue, by our own clock.
type waiting struct {
	// began is when we first looked at it, jobSet when we first saw its JobSet.
	began, jobSet time.Time
	// over is set when it queued without its JobSet.
	over bool
}

// patience returns how much longer a TrainJob waits to queue, with its JobSet there or not. Without, it waits for as long
// as is given.
func (w *waiting) patience(forJobSet time.Duration, jobSet bool) time.Duration {
	began := firstSeen(&w.began)
	if !jobSet {
		return max(0, time.Until(began.Add(forJobSet)))
	}
	return max(0, time.Until(firstSeen(&w.jobSet).Add(config.WaitForJobs)))
}

// firstSeen returns at, which is now at the first time.
func firstSeen(at *time.Time) time.Time {
	if at.IsZero() {
		*at = time.Now()
	}
	return *at
}

// jobEnd is how a TrainJob ended, as far as this process saw it.
type jobEnd struct {
	condition metav1.Condition
	// forgotten is set when Trainer does not say so any more.
	forgotten bool
	// held is when we first saw that it is suspended, also where it is deleted, by our own clock.
	held time.Time
}

// forget drops all that is remembered of a TrainJob by its UID. Whatever is asked of one
// that is only over, not gone, is found out again.
func (e *dependencies) forget(uid types.UID) {
	e.Runtimes.Forget(uid)
	e.Remembered.Remove(uid)
	e.Recorder.Forget(uid)
}
