// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	kueueconstants "sigs.k8s.io/kueue/pkg/constants"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobclient"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/peers"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// reconciler runs Kueue's jobframework on TrainJobs, and the rules that it does not know before and after it.
type reconciler struct {
	// deps is bound to a Trainer by each reconcile.
	deps *dependencies
}

func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	ctx = ctrl.LoggerInto(ctx, quiet(ctrl.LoggerFrom(ctx)))
	served, unknown := r.deps.trainer.Served()
	if unknown != nil {
		// What a TrainJob has left that is gone looks the same with every Trainer, and with none.
		served = trainjob.Trainer23
	}
	j, err := r.deps.of(served).observe(ctx, req.NamespacedName)
	if errors.Is(err, errOldView) {
		// It is as urgent as it was, and the event of the newer one may be looked at late.
		return ctrl.Result{RequeueAfter: retrySoon}, nil
	}
	if err != nil {
		return ctrl.Result{Priority: ptr.To(0)}, err
	}
	ctx = loggerOf(ctx, j)
	switch {
	case r.deps.inTree.Unknown():
		// The answer brings the job here again. When that takes long, the user is told.
		return j.yield(ctx, jobevents.ReasonInTreeUnknown, r.deps.inTree.Silence())
	case r.deps.inTree.Active():
		return j.yield(ctx, jobevents.ReasonNotAlone, peers.InTreeRemedy)
	case unknown != nil && j.UID != "":
		return j.yield(ctx, jobevents.ReasonTrainerUnknown, unknown.Error())
	}
	return j.conclude(ctx, j.reconcile(ctx))
}

// reconcile lets jobframework decide about a TrainJob, follows that decision to its end, and
// ensures what neither jobframework nor Trainer would see to.
func (j *job) reconcile(ctx context.Context) result {
	sum := untilEnd(ctx, j, []rule{releaseCopies, observeNamespace, leaveAlone, keepEnded})
	if sum.ends() {
		return sum
	}
	before := untilEnd(ctx, j, rulesOf(j.phase()).before)
	sum.add(before)
	if !before.ends() {
		sum.add(decide(ctx, j))
	}
	if j.UID == "" {
		j.deps.forgetName(j.key)
	}
	var always result
	for _, of := range rulesOf(j.phase()).always {
		always.add(of(ctx, j))
	}
	if j.decision.made && j.decision.err == nil {
		if j.decision.started != "" && !j.IsSuspended() {
			// Every start is news, also one by the admission of the last.
			if wl := j.holdingQuota(); wl != nil { // Else it is being taken back already.
				j.record.run.Starts(j.deps.metrics, wl)
			}
			j.deps.Recorder.Resolve(j.UID, jobevents.ReasonStarted)
			j.tell(jobevents.ReasonStarted, jobevents.ActionStart, "%s", j.decision.started)
		}
		sum.add(all(ctx, j, rulesOf(j.phase()).settled))
	}
	sum.add(always)
	if before.unqueued && !j.deps.Field.HoldsGate(&j.Spec) {
		// The child Jobs that are made meanwhile have the gate then. One that has it, as its webhook sees to, costs no look.
		sum.add(ensureGate(ctx, j))
	}
	return sum
}

// decide has jobframework look at a job.
func decide(ctx context.Context, j *job) result {
	if j.alive() {
		// jobframework has no context for it.
		active, wl := j.active(ctx), j.holdingQuota()
		if wl != nil && (!wl.DeletionTimestamp.IsZero() || active && jobframework.PrebuiltWorkloadNameFor(j) != "") {
			// Of a job with another limit it would finish the Workload, or let a deleted one go, and the quota with it before the
			// pods.
			keepTimeLimit(j, wl)
		}
	}
	if jobframework.WorkloadSliceEnabled(j) {
		// The webhooks refuse it where they are asked. jobframework stops no elastic job, and Trainer knows no slices.
		j.Annotations[kueueconstants.ElasticJobAnnotation] = ""
	}
	decided, err := j.deps.framework(j).ReconcileGenericJob(ctx, ctrl.Request{NamespacedName: j.key}, j)
	j.decision.made, j.decision.err = true, err
	sum := result{again: decided.RequeueAfter}
	sum.add(result{again: j.decision.again})
	return sum
}

// conclude returns for the controller what a reconcile came to, and ends its look at the job. One that saw nothing new
// tells nothing of its troubles.
func (j *job) conclude(ctx context.Context, sum result) (ctrl.Result, error) {
	out, err := j.answer(ctx, sum)
	// Only a look that gets as far as a start finds that a roll-out is over.
	decided := j.decision.made && j.decision.err == nil
	if !sum.stale && (decided || j.record.told != jobevents.ReasonTrainerBehind) {
		j.record.told = ""
	}
	if j.UID != "" && !sum.stale {
		j.deps.Recorder.EndLook(j.UID)
	}
	j.deps.records.trim(j.key)
	return out, err
}

// answer returns when the controller is to look again, or the error that it does so for.
func (j *job) answer(ctx context.Context, sum result) (ctrl.Result, error) {
	err, inVain := sum.err, j.inVain(sum.err)
	if wait := jobclient.BackoffOf(err); wait > 0 {
		j.warn(jobevents.ReasonWriteInVain, jobevents.ActionWrite, "%v", err)
		return ctrl.Result{RequeueAfter: wait, Priority: ptr.To(0)}, nil
	}
	if apierrors.IsConflict(err) {
		ctrl.LoggerFrom(ctx).V(2).Info("Another writer was faster", "error", err)
		name := jobclient.ConflictingWorkload(err)
		for _, wl := range j.view.Workloads {
			if wl.Name == name {
				j.deps.expectations.Outdate(j.key, wl)
			}
		}
		// Whatever Kueue decided is not done yet: it stays as urgent as it is.
		return ctrl.Result{RequeueAfter: retrySoon}, nil
	}
	// What waits shall not be in the way of what was decided meanwhile.
	urgency := ptr.To(0)
	if wait := retryIn(err); wait > 0 && !lagsLong(j.deps.expectations, &j.TrainJob, err) {
		return ctrl.Result{RequeueAfter: max(wait, inVain), Priority: urgency}, nil
	}
	if j.UID != "" && (apierrors.IsInvalid(err) || apierrors.IsForbidden(err)) {
		j.warn(jobevents.ReasonRefused, jobevents.ActionWrite, "%v", err)
	}
	if err != nil {
		// With an error, no more of the result has a say.
		return ctrl.Result{Priority: urgency}, err
	}
	return ctrl.Result{RequeueAfter: sum.again, Priority: urgency}, nil
}

// forgetName drops what is remembered of a TrainJob by its name alone.
func (e *dependencies) forgetName(key types.NamespacedName) {
	e.expectations.Forget(key)
	e.records.Delete(key)
}

// followUp does what the reason of jobframework's decision calls for, and tells people of it. It comes to what
// went wrong: with that, or else with the decision itself.
func followUp(ctx context.Context, j *job) result {
	err := j.decision.err
	if errors.Is(err, peers.ErrRollingOut) {
		err = cmp.Or(awaitRollout(ctx, j), err)
	}
	if errors.Is(err, jobframework.ErrPrebuiltWorkloadNotFound) {
		err = cmp.Or(tellPrebuilt(ctx, j), err)
	}
	if classMissing(err) {
		tellClassMissing(j, err)
	}
	if j.decision.excess != "" {
		err = cmp.Or(renewExceeding(ctx, j), err)
	}
	if errors.Is(err, errStillActive) {
		err = cmp.Or(watchStop(ctx, j).err, err)
	}
	j.decision.err = err
	return ofError(err)
}

// yield does nothing for a job but to let its copies go, and tells a queued one why; without a message, it tells nothing.
func (j *job) yield(ctx context.Context, reason, message string) (ctrl.Result, error) {
	defer j.deps.records.trim(j.key)
	if released := releaseCopies(ctx, j); released.err != nil || released.again > 0 {
		return released.asResult()
	}
	if j.UID == "" {
		j.deps.forgetName(j.key)
		if left := j.view.Workloads; len(left) == 0 {
			return ctrl.Result{}, nil
		}
		// No other event comes of a Workload that waits for its finalizer, and has quota. When the manager acts again, that
		// brings here the TrainJobs that there are.
		return ctrl.Result{RequeueAfter: retrySlowly}, nil
	}
	if err := observeNamespace(ctx, j).err; err != nil {
		return ctrl.Result{}, err
	}
	if message != "" && j.manages && !j.TrainJob.Finished() {
		j.tellOnce(reason, jobevents.ActionDescribe, message)
		j.deps.Recorder.EndLook(j.UID)
	}
	return ctrl.Result{}, nil
}

// errStillActive keeps jobframework from releasing what belongs to pods that are left.
var errStillActive = errors.New("pods of the stopped run are still there")

// errOutdated keeps jobframework from starting or stopping a job by a view of the past.
var errOutdated = errors.New("the admission of the job is another one than the cache has heard of")

// errOldView ends a reconcile whose view of a Workload is known to be an old one.
var errOldView = errors.New("a newer version of the Workload is on its way")

// retryIn returns when to try again after an error which only says that the world moved while we looked: the next try is
// all there is to do, and nobody has to know. 0 is for any other.
func retryIn(err error) time.Duration {
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		// The job is being deleted as well.
		return retryTerminating
	case classMissing(err):
		return retryClass
	case errors.Is(err, jobframework.ErrPrebuiltWorkloadNotFound):
		return retryPrebuilt
	case errors.Is(err, errStillActive), errors.Is(err, errOutdated), errors.Is(err, peers.ErrRollingOut),
		apierrors.IsAlreadyExists(err), jobclient.TrainerLags(err):
		// Something has to happen before.
		return retrySlowly
	case jobclient.BackoffOf(err) > 0, apierrors.IsConflict(err), gone(err),
		errors.Is(err, jobframework.ErrNoMatchingWorkloads), errors.Is(err, jobframework.ErrExtraWorkloads):
		return retrySoon
	}
	return 0
}

// inVain returns how long a job without quota has been waiting for what people may yet make, which is how long it waits for
// the next look: of thousands, nobody else shall notice.
func (j *job) inVain(err error) time.Duration {
	longest := longestClass
	switch {
	case errors.Is(err, jobframework.ErrPrebuiltWorkloadNotFound):
		longest = longestPrebuilt
	case !classMissing(err):
		longest = 0
	}
	if longest == 0 || j.holdingQuota() != nil {
		j.record.lacks = time.Time{}
		return 0
	}
	return min(longest, time.Since(firstSeen(&j.record.lacks)))
}

// gone reports whether err is of a write to a TrainJob or Workload that was deleted meanwhile. Where
// their CRD is missing, the answer names a cause.
func gone(err error) bool {
	what := jobclient.DetailsOf(err)
	return apierrors.IsNotFound(err) && what.Name != "" && len(what.Causes) == 0 && (what.Kind == "workloads" || what.Kind == "trainjobs")
}

// classMissing reports whether err is of a priority class that is not there: it may come yet. Caches name the kind, where the
// API server names the resource.
func classMissing(err error) bool {
	kind := jobclient.DetailsOf(err).Kind
	return apierrors.IsNotFound(err) && (kind == "WorkloadPriorityClass" || kind == "PriorityClass")
}

const (
	// retrySoon is how long a reconcile waits that was overtaken by another writer;
	// mostly the event of that write is faster.
	retrySoon = 300 * time.Millisecond

	// retrySlowly is how long a reconcile waits for an event that has to come: of its own
	// Workload, of an admission, of the last pod. Asking more often brings nothing.
	retrySlowly = 2 * time.Second

	// retryTerminating is how long a reconcile waits for the end of a namespace.
	retryTerminating = 5 * time.Second

	// retryClass is how long a reconcile waits for a priority class that somebody may yet create, longestClass bounds it
	// where no quota is held: the event of the class brings the job here.
	retryClass   = 10 * time.Second
	longestClass = 5 * time.Minute
)

// quietSink makes jobframework's error lines about expected retries verbose ones.
type quietSink struct {
	logr.LogSink
}

// quiet wraps a logger. Call depths stay right because the sink adds no frame that counts.
func quiet(log logr.Logger) logr.Logger {
	return log.WithSink(quietSink{log.GetSink()})
}

func (s quietSink) Error(err error, msg string, keysAndValues ...any) {
	if retryIn(err) == 0 {
		s.LogSink.Error(err, msg, keysAndValues...)
		return
	}
	const level = 2
	if s.Enabled(level) {
		s.LogSink.Info(level, msg, append(keysAndValues, "error", err.Error())...)
	}
}

func (s quietSink) WithValues(keysAndValues ...any) logr.LogSink {
	return quietSink{s.LogSink.WithValues(keysAndValues...)}
}

func (s quietSink) WithName(name string) logr.LogSink {
	return quietSink{s.LogSink.WithName(name)}
}
