// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/deactivation"
	"github.com/kueue-trainer/kueue-trainer/pkg/held"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobclient"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobmetrics"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/podsready"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/ledger"
	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/pkg/webhookscope"
)

// admittedBy returns the queue that admitted a Workload, which proves that it is there.
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
		queue = metrics.Queue{Namespace: j.Namespace}
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
		reason = evictedFor(wl)
	}
	measureStop(j, reason)
	return result{}
}

// stopReason returns the word of the metrics for why jobframework stops a job.
func stopReason(j *job, reason jobframework.StopReason) string {
	switch reason {
	case jobframework.StopReasonWorkloadEvicted:
		if wl := j.holdingQuota(); wl != nil && kueuelib.IsEvicted(wl) {
			return evictedFor(wl)
		}
	case jobframework.StopReasonWorkloadDeleted:
		return metrics.StopWorkloadDeleted
	case jobframework.StopReasonNoMatchingWorkload:
		return metrics.StopNoMatchingWorkload
	}
	return metrics.StopNotAdmitted
}

// evictedFor returns Kueue's reason of an eviction.
func evictedFor(wl *kueue.Workload) string {
	return apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadEvicted).Reason
}

// measureGone records how long evicted jobs had pods after that: until their quota was given back.
// It filters nothing.
func measureGone(recorder *metrics.Recorder) predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*kueue.Workload)
		after, okAfter := e.ObjectNew.(*kueue.Workload)
		if ok && okAfter && gaveBack(before, after) {
			recorder.Gone(admittedBy(before), time.Since(state.StoppedSince(before)))
		}
		return true
	}}
}

// gaveBack reports whether a TrainJob that was evicted while it was admitted has no quota any more
// since this event.
func gaveBack(before, after *kueue.Workload) bool {
	return state.ControllerOfKind(after, trainjob.GVK.Kind) != nil && before.DeletionTimestamp.IsZero() &&
		kueuelib.IsAdmitted(before) && kueuelib.IsEvicted(before) &&
		!kueuelib.HasQuotaReservation(after) && !kueuelib.IsFinished(after)
}

// setupLedger has the manager keep account of what TrainJobs hold.
func setupLedger(ctx context.Context, mgr ctrl.Manager, deps *dependencies, opts Options) error {
	facts := accountFacts{client: mgr.GetClient(), deps: deps, userLabel: opts.UserLabel}
	deps.ledger = ledger.New(ledger.Options{
		Namespace: opts.Namespace, Live: mgr.GetAPIReader(), Writer: mgr.GetClient(), Cached: mgr.GetClient(),
		Facts: facts.of, Recorder: mgr.GetEventRecorder(controllerName), Log: mgr.GetLogger().WithName("ledger"), Clock: clock.RealClock{},
	})
	if err := deps.ledger.Follow(ctx, mgr.GetCache()); err != nil {
		return err
	}
	deps.metrics.Register(ledger.NewCollector(deps.ledger, deps.metrics.LocalQueues))
	return mgr.Add(deps.ledger)
}

// accountFacts finds in the caches what the ledger does not read off a Workload.
type accountFacts struct {
	client client.Reader
	deps   *dependencies
	// userLabel is the label of TrainJobs that says whose they are, or nothing.
	userLabel string
}

// of returns the facts about a Workload. What cannot be read is left out: the next look has it.
func (f accountFacts) of(ctx context.Context, wl *kueue.Workload) ledger.Facts {
	facts := ledger.Facts{WaitsForPods: f.deps.kueue.Settings().WaitForPodsReady != nil}
	owner := state.ControllerOfKind(wl, trainjob.GVK.Kind)
	if owner == nil {
		return facts
	}
	var job trainjob.TrainJob
	err := f.client.Get(ctx, client.ObjectKey{Namespace: wl.Namespace, Name: owner.Name}, &job)
	if err != nil || job.UID != owner.UID {
		facts.UserUnknown = true
		return facts
	}
	facts.JobEnded, facts.Outcome = ledger.EndOf(&job)
	if f.userLabel != "" {
		facts.User = job.Labels[f.userLabel]
	}
	if !facts.WaitsForPods {
		view, _ := state.Observe(ctx, f.client, client.ObjectKeyFromObject(&job))
		facts.Started = ledger.StartOf(&job, wl, view.ChildJobsOf(&job))
	}
	return facts
}

// leaves has the ledger know that no pod is left of a Workload that is about to be gone.
func (e *dependencies) leaves(workload types.UID) {
	if e.ledger != nil {
		e.ledger.Leave(workload)
	}
}

// tellMetrics registers what is found out at each scrape.
func tellMetrics(mgr ctrl.Manager, deps *dependencies, scope *webhookscope.Scope) {
	counts := &jobmetrics.Counts{Cached: mgr.GetClient(), Leads: mgr.Elected(), StuckReason: deps.Recorder.StuckReason, Labels: deps.metrics.QueueLabels, Managed: deps.queues.ManagesNamespace}
	deps.metrics.Register(
		metrics.NewScraped(counts.Tell, counts.Metrics()...),
		metrics.NewScraped(func(tell metrics.Tell) {
			tellServing(tell, deps)
			if all, known := scope.All(); known {
				tell(metrics.WebhooksEveryTrainJob(), metrics.OneIf(all))
			}
		}, metrics.TrainerInfo(), metrics.InTree(), metrics.KueueConfigurationRead(), metrics.SettingDiffers(), metrics.WebhooksEveryTrainJob()))
}

// tellServing tells what this replica goes by.
func tellServing(tell metrics.Tell, deps *dependencies) {
	if version, err := deps.trainer.Served(); err == nil {
		tell(metrics.TrainerInfo(), 1, version.String())
	}
	holds := deps.inTree.State()
	for _, state := range []string{metrics.InTreeActive, metrics.InTreeOff, metrics.InTreeUnknown} {
		tell(metrics.InTree(), metrics.OneIf(state == holds), state)
	}
	tell(metrics.KueueConfigurationRead(), metrics.OneIf(deps.kueue.Readable()))
	for _, differs := range deps.kueue.Differ() {
		tell(metrics.SettingDiffers(), 1, differs.Setting)
	}
}

// facts says for people what tellMetrics tells.
func facts(deps *dependencies, scope *webhookscope.Scope) []string {
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
		kueue = "read"
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
func kueuesMetrics(ctx context.Context, queues cache.Informers, opts Options) (*kueuelib.CustomLabels, error) {
	labels, err := kueuelib.NewCustomLabels(opts.Kueue.Settings().CustomLabels)
	if err != nil {
		return nil, fmt.Errorf("giving Kueue's metrics the labels of its configuration: %w", err)
	}
	if labels != nil {
		err = followQueues(ctx, queues, func(queue client.Object) { kueuelib.StoreQueue(labels, queue) })
	}
	opts.Metrics.Register(kueuelib.JobMetrics()...)
	return labels, err
}

// followQueues has store called with every version of a ClusterQueue or LocalQueue. What is
// stored of one that is gone stays: it is little, and a Workload may yet name it.
func followQueues(ctx context.Context, queues cache.Informers, store func(client.Object)) error {
	stored := func(obj any) {
		if queue, ok := obj.(client.Object); ok {
			store(queue)
		}
	}
	return watchQueues(ctx, queues, toolscache.ResourceEventHandlerFuncs{
		AddFunc: stored, UpdateFunc: func(_, queue any) { stored(queue) },
	})
}

// forgetQueues drops what was recorded of queues that are gone: tenants may make and delete LocalQueues
// for ever.
func forgetQueues(ctx context.Context, queues cache.Informers, recorder *metrics.Recorder) error {
	return watchQueues(ctx, queues, toolscache.ResourceEventHandlerFuncs{DeleteFunc: func(obj any) {
		if unseen, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
			obj = unseen.Obj
		}
		switch queue := obj.(type) {
		case *kueue.ClusterQueue:
			recorder.ForgetClusterQueue(queue.Name)
		case *kueue.LocalQueue:
			recorder.ForgetLocalQueue(queue.Namespace, queue.Name)
		}
	}})
}

func watchQueues(ctx context.Context, queues cache.Informers, handler toolscache.ResourceEventHandler) error {
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

// podsReady returns the reporter of PodsReady.
func (e *dependencies) podsReady() podsready.Reporter {
	return podsready.Reporter{Client: e.client, Kueue: e.kueue, Expectations: e.expectations, Labels: e.labels}
}

// startReadinessOver resets PodsReady of a Workload that is evicted, before its quota is given
// back: Kueue's scheduler writes the condition as it last saw it when it admits the
// Workload again, and would evict it at once for a recovery that is long over. The quota
// follows with the next view of the Workload.
func startReadinessOver(ctx context.Context, j *job) error {
	if !j.deps.podsReady().Wanted() {
		return nil
	}
	wl := j.holdingQuota()
	if wl == nil {
		return nil
	}
	reported, err := j.deps.podsReady().Report(ctx, j.key, wl, false)
	if err != nil || !reported {
		return err
	}
	j.stopping = true
	return nil
}

// reportPodsReady brings PodsReady of a TrainJob's Workload in step, where Kueue waits for it, and
// the metrics in any case.
func reportPodsReady(ctx context.Context, j *job) result {
	// A job that is suspended, or was a moment ago, may have the counts of its last pods.
	ready := sync.OnceValue(func() bool {
		return j.decision.started == "" && (!j.IsSuspended() || j.ManagedExternally()) && j.PodsReady(ctx, j.deps.client)
	})
	measureReady(j, ready)
	if !j.deps.podsReady().Wanted() {
		return result{}
	}
	workloads := j.workloads()
	if len(workloads) == 0 || j.deps.expectations.Outdated(j.key, jobclient.VersionsOf(workloads)) {
		return result{}
	}
	for i := range workloads {
		if _, err := j.deps.podsReady().Report(ctx, j.key, &workloads[i], ready()); err != nil {
			return failed(err)
		}
	}
	return result{}
}

// notice is what the Workload of a TrainJob says that people have to know who look at the
// TrainJob alone.
type notice struct {
	reason, message string
	// meant: somebody has it wait, so nobody has to be called.
	meant bool
}

// noticeOf returns the one that matters most, or none.
func noticeOf(wl *kueue.Workload) notice {
	for _, of := range []func(*kueue.Workload) notice{outOfSync, rejected, deactivated, retried, inadmissible} {
		if n := of(wl); n.reason != "" {
			n.message = jobevents.Truncate(fmt.Sprintf("Workload %s %s", wl.Name, n.message))
			return n
		}
	}
	return notice{}
}

func outOfSync(wl *kueue.Workload) notice {
	finished := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadFinished)
	if finished == nil || finished.Status != metav1.ConditionTrue || finished.Reason != kueue.WorkloadFinishedReasonOutOfSync {
		return notice{}
	}
	return notice{reason: jobevents.ReasonOutOfSync, message: fmt.Sprintf("was finished without a run: %s; delete it and create it again like the TrainJob, and the job queues", finished.Message)}
}

// deactivated says by whom and why: Kueue gives a reason of its own for what it deactivates.
func deactivated(wl *kueue.Workload) notice {
	pending := deactivation.Pending(wl)
	if kueuelib.IsFinished(wl) || kueuelib.IsActive(wl) && !pending {
		return notice{}
	}
	who, why := "", ""
	evicted := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadEvicted)
	if !pending && evicted != nil && strings.HasPrefix(evicted.Reason, kueue.WorkloadDeactivated) {
		why = fmt.Sprintf(" (%s: %s)", evicted.Reason, evicted.Message)
		if evicted.Reason != kueue.WorkloadDeactivated {
			who = " by Kueue"
		}
	} else if target := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadDeactivationTarget); target != nil && target.Status == metav1.ConditionTrue {
		who, why = " by Kueue", fmt.Sprintf(" (%s: %s)", target.Reason, target.Message)
	}
	state, remedy := "was deactivated", "set its spec.active to true, and the job queues again"
	if kueuelib.IsDeactivatedByKueue(wl) {
		remedy = "delete it, and the job queues again"
	}
	if pending {
		state, remedy = "is being deactivated", "the job's pods end, and its quota is free when the last one is gone"
	}
	return notice{reason: jobevents.ReasonDeactivated, meant: who == "", message: fmt.Sprintf("%s%s%s; %s", state, who, why, remedy)}
}

// rejected comes before the deactivation that follows it: it names the checks.
func rejected(wl *kueue.Workload) notice {
	by := rejectedBy(wl)
	if by == "" || kueuelib.IsFinished(wl) {
		return notice{}
	}
	return notice{reason: jobevents.ReasonCheckRejected, message: fmt.Sprintf("was rejected by admission check %s; when that is put right, delete it, and the job queues again", by)}
}

// rejectedBy returns the checks that rejected a Workload, each with what it says, in the words that
// Kueue has for them. With the eviction Kueue sets their states back, and only its conditions tell.
func rejectedBy(wl *kueue.Workload) string {
	target := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadDeactivationTarget)
	evicted := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadEvicted)
	switch {
	case target != nil && target.Status == metav1.ConditionTrue && target.Reason == kueue.WorkloadEvictedByAdmissionCheck:
		return checksIn(target.Message)
	case kueuelib.IsEvicted(wl) && evicted.Reason == deactivatedByCheck && !kueuelib.IsActive(wl):
		return checksIn(evicted.Message)
	}
	var by []string
	for _, check := range wl.Status.AdmissionChecks {
		if check.State == kueue.CheckStateRejected {
			said := ""
			if check.Message != "" {
				said = " (" + check.Message + ")"
			}
			by = append(by, fmt.Sprintf("%q%s", check.Name, said))
		}
	}
	slices.Sort(by)
	return strings.Join(by, "; ")
}

// deactivatedByCheck is Kueue's reason for the eviction of a Workload that a check rejected.
const deactivatedByCheck = kueue.WorkloadDeactivated + "DueTo" + kueue.WorkloadEvictedByAdmissionCheck

// checksIn returns what Kueue's message about rejecting checks says of them.
func checksIn(message string) string {
	if _, checks, found := strings.Cut(message, "in Rejected state: "); found {
		return checks
	}
	return message
}

func retried(wl *kueue.Workload) notice {
	if check := checkIn(wl, kueue.CheckStateRetry); check != nil {
		return notice{reason: jobevents.ReasonCheckRetries, message: fmt.Sprintf("has to wait for admission check %s, which gave its quota back to try again: %s", check.Name, check.Message)}
	}
	// Kueue sets the state back with the eviction.
	if evicted := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadEvicted); !kueuelib.IsFinished(wl) && kueuelib.IsEvicted(wl) && evicted.Reason == kueue.WorkloadEvictedByAdmissionCheck {
		return notice{reason: jobevents.ReasonCheckRetries, message: fmt.Sprintf("has to wait for an admission check, which gave its quota back to try again: %s", evicted.Message)}
	}
	return notice{}
}

// checkIn returns the first admission check of an unfinished Workload in a state, or nil.
func checkIn(wl *kueue.Workload, state kueue.CheckState) *kueue.AdmissionCheckState {
	i := slices.IndexFunc(wl.Status.AdmissionChecks, func(check kueue.AdmissionCheckState) bool { return check.State == state })
	if i < 0 || kueuelib.IsFinished(wl) {
		return nil
	}
	return &wl.Status.AdmissionChecks[i]
}

// inadmissible is about what no freed quota helps. Kueue before its granular reasons calls
// all of that inadmissible.
func inadmissible(wl *kueue.Workload) notice {
	reserved := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadQuotaReserved)
	if kueuelib.IsFinished(wl) || reserved == nil || reserved.Status != metav1.ConditionFalse {
		return notice{}
	}
	if missing, is := strings.CutSuffix(strings.TrimPrefix(reserved.Message, "LocalQueue "), " doesn't exist"); is {
		// Held by its user, who knows, or was until now. A LocalQueue that is there after all has its own troubles.
		if _, is := held.From(missing); is {
			return notice{}
		}
	}
	switch reserved.Reason {
	case kueue.WorkloadInadmissible, kueue.WorkloadQuotaReservedReasonMisconfigured, kueue.WorkloadQuotaReservedReasonSuspended:
		return notice{reason: jobevents.ReasonNotAdmissible, message: fmt.Sprintf("cannot be admitted: %s%s", reserved.Message, queueRemedy(wl, reserved.Message))}
	}
	return notice{}
}

// queueRemedy goes by Kueue's words, since its reasons do not tell the queues apart.
func queueRemedy(wl *kueue.Workload, message string) string {
	local := strings.HasPrefix(message, "LocalQueue ")
	switch {
	case local && strings.HasSuffix(message, "doesn't exist"):
		return fmt.Sprintf("; create it in namespace %s, or name another in label %s of the TrainJob", wl.Namespace, kueueconstants.QueueLabel)
	case local:
		return "; it starts again with spec.stopPolicy None, if its ClusterQueue is active"
	case strings.HasPrefix(message, "ClusterQueue ") && strings.HasSuffix(message, "doesn't exist"):
		return "; create it, or name another in the spec.clusterQueue of a new LocalQueue"
	case strings.HasPrefix(message, "ClusterQueue "):
		return "; its condition Active says why, spec.stopPolicy among other things"
	}
	return ""
}

// tellNotice tells a TrainJob what its Workload says, once while it says so. It is trouble unless
// somebody means it. Kueue says of queues that are stopped what it says of queues that lack a flavor.
func tellNotice(ctx context.Context, j *job) result {
	n := noticeFor(j.workloads())
	if n.reason == jobevents.ReasonNotAdmissible {
		var err error
		if n.meant, err = j.deps.queues.Stopped(ctx, &j.TrainJob); err != nil {
			return failed(err)
		}
	}
	if n.reason != "" && !n.meant {
		j.deps.Recorder.Note(j.UID, n.reason)
	}
	j.deps.Recorder.WarnOfState(&j.TrainJob, jobevents.ActionQueue, n.reason, n.message)
	return result{}
}

// noticeFor returns the notice of the Workload of a job that is not finished, or else of the last one.
func noticeFor(workloads []kueue.Workload) notice {
	var out notice
	for i := range workloads {
		if n := noticeOf(&workloads[i]); out.reason == "" || !kueuelib.IsFinished(&workloads[i]) {
			out = n
		}
	}
	return out
}
