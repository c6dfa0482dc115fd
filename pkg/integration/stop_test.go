// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/constants"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/deactivation"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobclient"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/podtracking"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestLongStopIsTold(t *testing.T) {
	deleted := func(wl *kueue.Workload) { wl.DeletionTimestamp = new(metav1.NewTime(time.Now().Add(-time.Minute))) }
	type row struct {
		stop func(*kueue.Workload)
		// active is what JobSet reports, pods what its Job has.
		active, pods int32
		want         string
	}
	expect.Rows(t, map[string]row{
		"an evicted job with a pod":               {stop: evictedAgo(time.Minute), active: 1, pods: 1, want: "Normal StillStopping Pods of the stopped run are still terminating"},
		"an evicted job that JobSet holds up":     {stop: evictedAgo(time.Minute), active: 1, want: "Warning StillStopping no pod of the stopped run is left, but JobSet job"},
		"one that was evicted just now":           {stop: evictedAgo(0), active: 1},
		"a deleted Workload that JobSet holds up": {stop: deleted, active: 1, want: "Warning StillStopping no pod of the stopped run is left, but JobSet job"},
		"a deleted Workload with pods":            {stop: deleted, active: 1, pods: 2, want: "Normal StillStopping Pods of the stopped run are still terminating"},
	}, func(t *testing.T, tc row) {
		stored, js := disagreeing(true, true, true, time.Now().Add(-20*time.Second))
		js.Status.ReplicatedJobsStatus = []jobsetapi.ReplicatedJobStatus{{Name: "node", Active: tc.active}}
		child := kit.ChildJob(js, "node", kit.Active(tc.pods))
		child.Spec.Suspend = new(true)
		wl := inttest.WorkloadOf(stored, kit.Admitted, kit.Held, tc.stop)
		r, recorder := onStatuses(t, stored, js, child, wl)
		result, err := r.Reconcile(t.Context(), jobRequest)
		expect.That(t, err == nil && (wl.DeletionTimestamp == nil && tc.want != "" || result.RequeueAfter != 0), "Reconcile returned %v, %v", result, err)
		wantTold(t, eventsSoFar(recorder, ""), tc.want)
	})
}

// Trainer's refusals for the pods of before are silent for a while only, and no quota hangs on them in the end: a JobSet that
// somebody keeps from being deleted reports pods for ever that are gone.
func TestQuotaGoesWithoutTheGateInTheEnd(t *testing.T) {
	expect.Rows(t, map[string]expect.Row[time.Duration, bool]{
		"Trainer may just not have heard of the last pod": {In: 10 * time.Second},
		"it has not for a minute":                         {In: time.Minute, Want: true},
	}, func(t *testing.T, tc expect.Row[time.Duration, bool]) {
		stored, _ := disagreeing(true, true, true, time.Now().Add(-time.Minute))
		lagging := func(wl *kueue.Workload) (*reconciler, *events.FakeRecorder) {
			r, recorder := newReconciler(t, stored.DeepCopy(), wl)
			r.deps.expectations = jobclient.NewExpectations(clocktesting.NewFakePassiveClock(time.Now().Add(-tc.In)))
			r.deps.client = kit.Writes(r.deps.client, func(kit.Write) error {
				return apierrors.NewForbidden(jobclient.Resource, "job", errors.New("the JobSet's ReplicatedJob node is still active"))
			})
			return r, recorder
		}
		r, recorder := lagging(inttest.WorkloadOf(stored))
		result, err := r.Reconcile(t.Context(), jobRequest)
		expect.That(t, (err != nil) == tc.Want && (result.RequeueAfter == retrySlowly) != tc.Want, "Reconcile returned %v, %v", result, err)
		expect.Same(t, "The user is told", tc.Want, len(eventsSoFar(recorder, jobevents.ReasonRefused)) > 0)

		r, _ = lagging(inttest.WorkloadOf(stored, kit.Admitted))
		_, err = jobOf(t, r, stored).Stop(t.Context(), r.deps.client, nil, jobframework.StopReasonWorkloadEvicted, "")
		expect.That(t, (err == nil) == tc.Want, "Stop returned %v", err)
		expect.That(t, !lagsLong(r.deps.expectations, stored, errStillActive), "Pods that are left count as a refusal")
	})
}

// Trainer refuses every change of a job whose runtime is gone. A tenant who takes a runtime away shall not keep quota by that.
func TestQuotaGoesWhereTrainerRefusesTheGate(t *testing.T) {
	type row struct {
		began  time.Time
		jobSet bool
		err    error
		goes   bool
	}
	invalid := apierrors.NewForbidden(jobclient.Resource, "job", errors.New("spec.runtimeRef: Invalid value"))
	expect.Rows(t, map[string]row{
		"there is no JobSet":                {began: time.Now(), err: invalid, goes: true},
		"there is one, and it may pass":     {began: time.Now(), jobSet: true, err: invalid},
		"there is one, for a minute":        {began: time.Now().Add(-time.Minute), jobSet: true, err: invalid, goes: true},
		"the API server does not answer":    {began: time.Now().Add(-time.Minute), err: apierrors.NewServiceUnavailable("away")},
		"another one has written meanwhile": {began: time.Now(), err: apierrors.NewConflict(jobclient.Resource, "job", errors.New("overtaken"))},
	}, func(t *testing.T, tc row) {
		stored, js := disagreeing(true, true, true, time.Now().Add(-time.Minute))
		there := []client.Object{stored.DeepCopy(), inttest.WorkloadOf(stored, kit.Admitted)}
		if tc.jobSet {
			js.Spec.Suspend = new(true)
			there = append(there, js)
		}
		r, recorder := newReconciler(t, there...)
		r.deps.expectations = jobclient.NewExpectations(clocktesting.NewFakePassiveClock(tc.began))
		r.deps.client = kit.Writes(r.deps.client, func(kit.Write) error { return tc.err })
		_, err := jobOf(t, r, stored).Stop(t.Context(), r.deps.client, nil, jobframework.StopReasonWorkloadEvicted, "")
		expect.That(t, (err == nil) == tc.goes, "Stop returned %v", err)
		expect.Same(t, "The user is told", tc.goes, len(eventsSoFar(recorder, jobevents.ReasonRefused)) > 0)
	})
}

// Trainer makes another JobSet of a job that is not suspended, for as long as somebody's finalizer
// keeps it.
func TestDeletedJobThatStaysIsSuspended(t *testing.T) {
	type row struct {
		suspended bool
		change    func(*trainjob.TrainJob)
		quota     bool
		// want is whether it is suspended, writes how many requests that takes.
		want   bool
		writes int
	}
	expect.Rows(t, map[string]row{
		"one that runs":           {quota: true, want: true, writes: 1},
		"one whose quota is gone": {want: true, writes: 1},
		"one that waits":          {suspended: true, want: true},
		"one of no queue":         {change: withoutQueue},
		"one of no queue, placed": {change: kit.All(withoutQueue, func(job *trainjob.TrainJob) { place(t, job, patch.Placement{Name: "node"}) }), want: true, writes: 1},
		"one that has ended":      {change: ended(trainer.TrainJobComplete)},
		"one that MultiKueue has": {change: elsewhere},
	}, func(t *testing.T, tc row) {
		stored, _ := disagreeing(tc.suspended, tc.suspended, tc.suspended, time.Now())
		r, _ := newReconciler(t, kit.With(stored, isDeleted, tc.change))
		if tc.quota {
			create(t, r, inttest.WorkloadOf(stored, kit.Admitted))
		}
		writes := 0
		r.deps.client = kit.Writes(r.deps.client, func(kit.Write) error { writes++; return nil })
		j := jobOf(t, r, storedJob(t, r))
		outcome := untilEnd(t.Context(), j, rulesOf(phaseDeleting).before)
		expect.NoError(t, outcome.err)
		expect.That(t, storedJob(t, r).Suspended() == tc.want && writes == tc.writes,
			"It is suspended: %t, after %d writes; want %t, %d", storedJob(t, r).Suspended(), writes, tc.want, tc.writes)
		// Trainer may be about to make a JobSet by what it saw before.
		expect.Same(t, "The quota is kept", tc.quota, outcome.done && outcome.again > 0)
	})
}

// Whoever deletes a job in the foreground has its JobSet go before it. Trainer refuses every change of one whose runtime is gone.
func TestDeletedJobGivesItsQuotaBackWhereTrainerRefusesToSuspendIt(t *testing.T) {
	type row struct {
		runtime, jobSet bool
		err             error
		goes            bool
	}
	refused := apierrors.NewForbidden(jobclient.Resource, "job", errors.New("spec.runtimeRef: Invalid value"))
	expect.Rows(t, map[string]row{
		"its runtime is gone":            {err: refused, goes: true},
		"its JobSet is there":            {err: refused, jobSet: true},
		"Trainer may make another one":   {err: refused, runtime: true},
		"the API server does not answer": {err: apierrors.NewServiceUnavailable("away")},
	}, func(t *testing.T, tc row) {
		synctest.Test(t, func(t *testing.T) {
			stored, js := disagreeing(false, false, false, time.Now().Add(-time.Minute))
			if !tc.runtime {
				stored.Spec.RuntimeRef.Name = "gone"
			}
			r, recorder := newReconciler(t, kit.With(stored, isDeleted), inttest.WorkloadOf(stored, kit.Admitted, kit.Held))
			if tc.jobSet {
				create(t, r, js)
			}
			r.deps.client = kit.Writes(r.deps.client, func(w kit.Write) error {
				if w.Verb == "patch" {
					return tc.err
				}
				return nil
			})
			ending := func() result {
				return untilEnd(t.Context(), jobOf(t, r, storedJob(t, r)), rulesOf(phaseDeleting).before)
			}
			expect.That(t, ending().ends(), "The quota goes while Trainer may have the job in hand")
			time.Sleep(podtracking.ResumeGrace)
			expect.Same(t, "The quota goes", tc.goes, !ending().ends())
			expect.Same(t, "The user is told", tc.goes, len(eventsSoFar(recorder, jobevents.ReasonRefused)) > 0)
		})
	})
}

// Trainer makes another JobSet of what it takes for ended only as long as there is one.
func TestWhatComesBackIsSuspendedWhenItIsDeleted(t *testing.T) {
	type row struct {
		served trainjob.TrainerVersion
		job    func(*trainjob.TrainJob)
		// closed is for how long its namespace is being deleted, where Trainer may refuse to have it suspended.
		closed time.Duration
		want   bool
	}
	expect.Rows(t, map[string]row{
		"one that runs":                       {served: trainjob.Trainer23, want: true},
		"one whose namespace goes, just now":  {served: trainjob.Trainer23, closed: time.Second, want: true},
		"one whose namespace goes":            {served: trainjob.Trainer23, closed: time.Minute},
		"one that failed":                     {served: trainjob.Trainer23, job: ended(trainer.TrainJobFailed), want: true},
		"one that is complete":                {served: trainjob.Trainer23, job: ended(trainer.TrainJobComplete)},
		"one that is complete in Trainer 2.1": {served: trainjob.Trainer21, job: ended(trainer.TrainJobComplete), want: true},
	}, func(t *testing.T, tc row) {
		stored, js := disagreeing(false, false, false, time.Now())
		r, _ := newReconciler(t, kit.With(stored, isDeleted, tc.job), js)
		r.deps.Describer = r.deps.For(tc.served)
		j := jobOf(t, r, storedJob(t, r))
		if tc.closed > 0 {
			j.view.NamespaceDeleted = time.Now().Add(-tc.closed)
		}
		expect.NoError(t, suspendDeleted(t.Context(), j).err)
		expect.Same(t, "It is suspended", tc.want, storedJob(t, r).Suspended())
	})
}

// Of the former job no pod may be there yet: its JobSet was resumed a moment before it was deleted and made again.
func TestFormerJobKeepsItsQuotaWhileItsJobSetMayGetPods(t *testing.T) {
	stored, _ := suspendedJob()
	former := formerOf(stored)
	resumed, suspended := inttest.JobSetOf(former, false), inttest.JobSetOf(former, true)
	runs := kit.ChildJob(resumed, "node", func(child *batchv1.Job) {
		child.Spec.Template.Labels = map[string]string{kueueconstants.PodSetLabel: "node"}
	})
	stopped := kit.With(runs.DeepCopy(), func(child *batchv1.Job) { child.Spec.Suspend = new(true) })
	pod := inttest.PodOf(jobKey.Namespace, jobKey.Name)
	waits := inttest.JobSetOf(stored, true)
	next := []client.Object{inttest.WorkloadOf(stored, kit.Admitted), inttest.JobSetOf(stored, false)}
	type row struct {
		// there is what there is beside the TrainJob and the former one's Workload, which was deleted a while ago.
		there   []client.Object
		deleted time.Duration
		want    bool
	}
	expect.Rows(t, map[string]row{
		"its JobSet was resumed":                         {there: []client.Object{resumed}, deleted: time.Hour, want: true},
		"Trainer may have it in hand":                    {there: []client.Object{suspended}, deleted: time.Second, want: true},
		"its JobSet is suspended":                        {there: []client.Object{suspended}, deleted: time.Hour},
		"its JobSet is gone":                             {deleted: time.Second},
		"its JobSet is gone, and a Job of it is not":     {there: []client.Object{runs}, deleted: time.Hour, want: true},
		"its JobSet is gone, and a suspended Job is not": {there: []client.Object{stopped}, deleted: time.Hour},
		"its JobSet is gone, and the next one runs":      {there: next, deleted: time.Hour},
		"all is gone but a pod":                          {there: []client.Object{pod}, deleted: time.Hour, want: true},
		"the same beside the next JobSet":                {there: []client.Object{pod, waits}, deleted: time.Hour, want: true},
	}, func(t *testing.T, tc row) {
		r, _ := newReconciler(t, append(tc.there, stored, inttest.WorkloadOf(former, kit.Admitted, kit.Held))...)
		j := jobOf(t, r, stored)
		for _, wl := range j.view.Workloads {
			if metav1.IsControlledBy(wl, former) {
				wl.DeletionTimestamp = new(metav1.NewTime(time.Now().Add(-tc.deleted)))
			}
		}
		r.deps.client = kit.Writes(r.deps.client, func(kit.Write) error { return kit.ErrAnswered })
		outcome := awaitPodsOfFormer(t.Context(), j)
		// Who has let the former Workload go looks again soon.
		expect.That(t, outcome.err == nil && outcome.done && (outcome.again == retrySoon) == !tc.want, "awaitPodsOfFormer() = %+v, want it to wait: %t", outcome, tc.want)
	})
}

// jobframework lets go of what a former job left only for one that queues.
func TestFormerJobLosesItsQuotaWhateverTheNextOneIs(t *testing.T) {
	expect.Rows(t, map[string]func(*trainjob.TrainJob){
		"it queues":               nil,
		"it runs without a queue": func(next *trainjob.TrainJob) { next.Labels, next.Spec.Suspend = nil, new(false) },
		"it has ended":            ended(trainer.TrainJobComplete),
	}, func(t *testing.T, change func(*trainjob.TrainJob)) {
		next, _ := suspendedJob()
		former := formerOf(next)
		kit.With(next, change)
		wl := inttest.WorkloadOf(former, kit.Admitted, kit.Held, deleted)
		r, _ := newReconciler(t, wl, next, inttest.JobSetOf(next, next.Suspended()))
		reconcileOnce(t, r)
		expect.That(t, !inttest.Exists(t, r.deps.client, wl), "The Workload of the former job keeps its quota")
	})
}

// What has lost its quota keeps it until its pods are gone, whatever it lost it by. A Workload that is deleted tells
// nobody when its last pod was gone, whatever else its job is.
func TestReleases(t *testing.T) {
	waits := func(job *trainjob.TrainJob) { job.Spec.Suspend = new(true) }
	type row struct {
		wl   func(*kueue.Workload)
		job  func(*trainjob.TrainJob)
		want string
	}
	expect.Rows(t, map[string]row{
		"a job that runs": {},
		"one that runs, whose runtime asks for more": {wl: func(wl *kueue.Workload) { wl.Spec.PodSets[0].Count++ }},
		"one that waits":                          {job: waits},
		"one that waits, and asks for more":       {job: waits, wl: func(wl *kueue.Workload) { wl.Spec.PodSets[0].Count++ }, want: "PodSetsChanged"},
		"one that has ended":                      {job: ended(trainer.TrainJobComplete), want: "Finished"},
		"one that was evicted":                    {wl: preempted, want: kueue.WorkloadEvictedByPreemption},
		"one that was deactivated":                {wl: kit.Deactivated, want: "Deactivated"},
		"one that was sent elsewhere":             {wl: func(wl *kueue.Workload) { wl.Spec.QueueName = "former" }, want: "QueueChanged"},
		"one that got another time limit":         {wl: func(wl *kueue.Workload) { wl.Spec.MaximumExecutionTimeSeconds = new(int32(60)) }, want: "TimeLimitChanged"},
		"one whose Workload is deleted":           {wl: deleted, want: "WorkloadDeleted"},
		"one that has ended, and that is deleted": {job: ended(trainer.TrainJobComplete), wl: deleted, want: "Finished"},
	}, func(t *testing.T, tc row) {
		stored, _ := disagreeing(false, false, false, time.Now())
		kit.With(stored, tc.job)
		r, _ := newReconciler(t, stored)
		createDescribed(t, r, stored, kit.Admitted, kit.Held, tc.wl)
		expect.Same(t, "It releases quota", tc.want, releases(t.Context(), jobOf(t, r, stored)))
	})
}

// Quota must not be given away because the API server does not answer, whatever JobSet counts.
func TestPodsThatCannotBeListedMayBeThere(t *testing.T) {
	stored, js := disagreeing(true, true, true, time.Now().Add(-time.Hour))
	counted := js.DeepCopy()
	counted.Status.ReplicatedJobsStatus = []jobsetapi.ReplicatedJobStatus{{Name: "node", Active: 1}}
	away := errors.New("away")
	var r *reconciler
	for _, there := range [][]client.Object{{counted}, {js, inttest.WorkloadOf(stored, kit.Admitted, evicted)}} {
		r, _ = newReconciler(t, append(there, stored)...)
		expect.That(t, !jobOf(t, r, stored).active(t.Context()), "A job without pods has some")
		r.deps.live = kit.Lists(r.deps.live, func(client.ObjectList) error { return away })
		expect.That(t, jobOf(t, r, stored).active(t.Context()), "A job whose pods cannot be listed has none")
	}
	expect.That(t, (&job{}).IsActive(), "A job whose pods nobody has asked for has none")

	former := formerOf(stored)
	left := inttest.WorkloadOf(former, kit.Admitted, kit.Held, deleted)
	create(t, r, left)
	for what, of := range map[string]rule{"former": awaitPodsOfFormer, "deleted": awaitPodsOfDeleted} {
		got := of(t.Context(), jobOf(t, r, stored))
		expect.That(t, errors.Is(got.err, away) && inttest.Exists(t, r.deps.client, left), "The quota of a %s job goes: %+v", what, got)
	}
}

// A job that could not start stays out of its queue from when its quota is free, which may be long after it was held back.
func TestHoldBackCountsFromTheStop(t *testing.T) {
	stored, js := suspendedJob()
	wl := inttest.WorkloadOf(stored, kit.Admitted, evicted)
	wl.UID = "wl"
	r, _ := newReconciler(t, stored, js, wl)
	j := jobOf(t, r, stored)
	j.record.start.HoldBack(wl.UID, stored, r.deps.Field, defaultStartTimeout)
	j.record.start.Until = time.Now()
	expect.Must(j.Stop(t.Context(), r.deps.client, nil, jobframework.StopReasonWorkloadDeleted, ""))(t)
	expect.That(t, j.record.start.HeldBack(stored, r.deps.Field) > 0, "It queues again at once")
}

func TestKeepsQuota(t *testing.T) {
	stored, _ := suspendedJob()
	quota := []client.Object{inttest.WorkloadOf(stored, kit.Admitted)}
	type row struct {
		reason jobframework.StopReason
		there  []client.Object
		want   bool
	}
	expect.Rows(t, map[string]row{
		"its Workload is deleted":                 {reason: jobframework.StopReasonWorkloadDeleted, want: true},
		"no Workload matches, and one has quota":  {reason: jobframework.StopReasonNoMatchingWorkload, there: quota, want: true},
		"no Workload matches, and none has quota": {reason: jobframework.StopReasonNoMatchingWorkload},
		"it was not admitted":                     {reason: jobframework.StopReasonNotAdmitted, there: quota},
		"it was evicted, for which Kueue waits":   {reason: jobframework.StopReasonWorkloadEvicted, there: quota},
	}, func(t *testing.T, tc row) {
		r, _ := newReconciler(t, append(tc.there, stored)...)
		err := keepsQuota(jobOf(t, r, stored), tc.reason)
		expect.Same(t, "It keeps its quota", tc.want, errors.Is(err, errStillActive))
	})
}

func TestDeactivation(t *testing.T) {
	overTime := kit.Is(kueue.WorkloadDeactivationTarget, kueue.WorkloadMaximumExecutionTimeExceeded)
	stopped := kit.All(deactivation.Mark, kit.Is(kueue.WorkloadEvicted, kueue.WorkloadDeactivated))
	waits := func(wl *kueue.Workload) { wl.Status = kueue.WorkloadStatus{} }
	type stored struct {
		Evicted        string
		Active, Marked bool
	}
	type row struct {
		workload func(*kueue.Workload)
		// podsLeft is for jobs that are stopped meanwhile.
		podsLeft bool
		want     stored
		wantOver bool
	}
	expect.Rows(t, map[string]row{
		"nobody deactivates it":                              {want: stored{"", true, false}},
		"a marked Workload is evicted":                       {workload: deactivation.Mark, want: stored{"Deactivated", true, true}, wantOver: true},
		"so is one that Kueue is about to, by cause":         {workload: overTime, want: stored{"DeactivatedDueToMaximumExecutionTimeExceeded", true, false}, wantOver: true},
		"one that was preempted is no more queued":           {workload: kit.All(deactivation.Mark, preempted), want: stored{"Deactivated", true, true}, wantOver: true},
		"an evicted one keeps its quota for pods":            {workload: stopped, podsLeft: true, want: stored{"Deactivated", true, true}},
		"without pods it is deactivated":                     {workload: stopped, want: stored{"Deactivated", false, false}},
		"one without quota that Kueue is about to":           {workload: kit.All(waits, overTime), want: stored{"", true, false}},
		"one without quota is deactivated at once":           {workload: kit.All(deactivation.Mark, waits), wantOver: true},
		"one that is deactivated loses its mark":             {workload: kit.All(deactivation.Mark, kit.Deactivated), wantOver: true},
		"one that is deleted gives its quota back with that": {workload: kit.All(deactivation.Mark, deleted), want: stored{"", true, true}},
		"one that has finished has none":                     {workload: kit.All(deactivation.Mark, kit.Is(kueue.WorkloadFinished, "")), want: stored{"", true, true}},
	}, func(t *testing.T, tc row) {
		job, _ := suspendedJob()
		wl := inttest.WorkloadOf(job, kit.Admitted, kit.Held, tc.workload)
		wl.Spec.MaximumExecutionTimeSeconds = new(int32(60))
		r, _ := onStatuses(t, job, wl)
		j := jobOf(t, r, job)
		got := startDeactivation(t.Context(), j)
		expect.NoError(t, got.err)
		expect.Same(t, "The reconcile is over", tc.wantOver, got.ends())
		if !got.ends() && wl.DeletionTimestamp == nil {
			expect.Same(t, "jobframework takes the job for the Workload's", tc.want.Evicted != "", state.SameTimeLimit(wl, &j.TrainJob))
			j.podsThere = &podsAnswer{may: tc.podsLeft}
			_, err := j.Stop(t.Context(), r.deps.client, nil, jobframework.StopReasonWorkloadEvicted, "")
			expect.Same(t, "jobframework goes on", tc.want.Active, !errors.Is(err, errOutdated))
		}
		inttest.Reload(t, r.deps.client, wl)
		evicted := ptr.Deref(apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadEvicted), metav1.Condition{})
		expect.Same(t, "Unexpected Workload", tc.want, stored{evicted.Reason, ptr.Deref(wl.Spec.Active, true), deactivation.Marked(wl)})
	})
}

// jobframework would make another Workload of a job whose time limit was changed, which nobody has deactivated.
func TestDeactivatedJobIsTheOneOfItsWorkload(t *testing.T) {
	job, _ := suspendedJob()
	wl := inttest.WorkloadOf(job, kit.Admitted, kit.Deactivated)
	wl.Spec.MaximumExecutionTimeSeconds = new(int32(60))
	r, _ := newReconciler(t, job, wl)
	j := jobOf(t, r, job)
	got := startDeactivation(t.Context(), j)
	expect.That(t, !got.ends() && state.SameTimeLimit(wl, &j.TrainJob), "startDeactivation() = %+v, and the job has another time limit", got)
}

// A user resumed it, and Trainer may have that in hand.
func TestStopOfAJobThatItsUserResumedAwaitsTrainer(t *testing.T) {
	stored, js := disagreeing(false, true, true, time.Now())
	r, _ := newReconciler(t, stored, js)
	j := jobOf(t, r, stored)
	expect.NoError(t, suspendNow(t.Context(), j, ""))
	expect.That(t, j.active(t.Context()), "Its quota may go in the look that stopped it")
	j.Generation++
	_, waits := r.deps.expectations.StoppedBeforeResume(&j.TrainJob)
	expect.That(t, waits, "Trainer's answer is not waited for")
}

// What jobframework goes by is stored.
func TestJobThatCannotBeWrittenStaysWhatItWas(t *testing.T) {
	stored, js := disagreeing(false, false, false, time.Now())
	r, _ := newReconciler(t, stored, js)
	r.deps.client = kit.Writes(r.deps.client, func(kit.Write) error { return kit.Forbidden("trainjobs") })
	j := jobOf(t, r, stored)
	expect.That(t, suspend(t.Context(), j, false, "") != nil && !j.IsSuspended(), "It counts as suspended")
}

// Nobody would take the gate off.
func TestJobOfNobodyGetsNoGate(t *testing.T) {
	for _, queued := range []bool{true, false} {
		stored, js := suspendedJob()
		if !queued {
			stored.Labels = nil
		}
		r, _ := newReconciler(t, stored, js)
		expect.NoError(t, ensureGate(t.Context(), jobOf(t, r, storedJob(t, r))).err)
		expect.Same(t, "It has the gate", queued, r.deps.Field.HoldsGate(&storedJob(t, r).Spec))
	}
}

// What the manager suspends is no stop by its user.
func TestStopsOfTheManager(t *testing.T) {
	notAdmitted := map[string]float64{"kueue_trainer_stops_total NotAdmitted": 1}
	type row struct {
		job  func(*trainjob.TrainJob)
		wl   func(*kueue.Workload)
		stop func(*job) error
		want map[string]float64
	}
	expect.Rows(t, map[string]row{
		"resumed before it was placed": {stop: func(j *job) error { return ensurePlaced(t.Context(), j).err }, want: notAdmitted},
		"resumed after its end":        {wl: hasFailed, stop: func(j *job) error { return ensureEnded(t.Context(), j).err }, want: notAdmitted},
		"resumed after an end that Trainer tells": {job: ended(trainer.TrainJobFailed), wl: hasFailed,
			stop: func(j *job) error { return ensureEnded(t.Context(), j).err }, want: map[string]float64{}},
	}, func(t *testing.T, tc row) {
		stored, _ := disagreeing(false, false, false, time.Now())
		kit.With(stored, tc.job)
		r, _ := newReconciler(t, stored, inttest.WorkloadOf(stored, kit.Admitted, tc.wl))
		registry := prometheus.NewRegistry()
		r.deps.metrics = metrics.NewRecorder(registry, metrics.QueueLabels{})
		j := jobOf(t, r, stored)
		expect.NoError(t, tc.stop(j))
		expect.That(t, j.IsSuspended(), "It is not suspended")
		measureStopped(t.Context(), j)
		expect.Same(t, "Unexpected metrics", tc.want, inttest.Counted(t, registry))
	})
}
