// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/testenv"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestCorrectDrift(t *testing.T) {
	// Now is still to come, however long a busy machine takes for the cases before.
	long, now := time.Now().Add(-time.Minute), time.Now().Add(time.Minute)
	volumes := func(retention *jobsetapi.VolumeRetentionPolicy) func(*jobsetapi.JobSet) {
		return func(js *jobsetapi.JobSet) {
			js.Spec.VolumeClaimPolicies = []jobsetapi.VolumeClaimPolicy{{RetentionPolicy: retention}}
		}
	}
	type row struct {
		// suspended: the TrainJob, what Trainer says of it, the JobSet.
		job, said, jobSet bool
		since             time.Time
		change            func(*trainjob.TrainJob)
		changeJobSet      func(*jobsetapi.JobSet)
		// stale makes our view of the TrainJob an old one.
		stale bool
		// served is Trainer 2.2 where it is not said.
		served trainjob.TrainerVersion
		// done adds a child Job that has succeeded.
		done bool
		// refused adds what Trainer said of the TrainJob.
		refused time.Time
		// led is since when this process leads; zero: for ever.
		led time.Time

		wantWait   bool
		wantJobSet string
		// wantEvent is a part of what the user is told; empty where that is nothing.
		wantEvent string
	}
	expect.Rows(t, map[string]row{
		"all agree":                                              {job: true, said: true, jobSet: true, since: long, wantJobSet: "suspended"},
		"Trainer has not seen the stop":                          {job: true, said: false, jobSet: false, since: long, led: now, wantWait: true, wantJobSet: "runs"},
		"Trainer never sees the stop":                            {job: true, said: false, jobSet: false, since: long, wantJobSet: "suspended", wantEvent: "was suspended for Trainer"},
		"Trainer never sees the stop of a deleted job":           {job: true, said: false, jobSet: false, since: long, change: isDeleted, wantJobSet: "suspended", wantEvent: "was suspended for Trainer"},
		"a stop that may be on its way":                          {job: true, said: true, jobSet: false, since: now, wantWait: true, wantJobSet: "runs"},
		"a stop that Trainer could not do":                       {job: true, said: true, jobSet: false, since: long, wantJobSet: "suspended", wantEvent: "was suspended for Trainer"},
		"the same with Trainer 2.3, whose snapshot was edited":   {job: true, said: true, jobSet: false, since: long, served: trainjob.Trainer23, wantJobSet: "suspended", wantEvent: "was suspended for Trainer"},
		"the same in an old view":                                {job: true, said: true, jobSet: false, since: long, stale: true, wantWait: true, wantJobSet: "runs"},
		"Trainer has not seen the start":                         {job: false, said: true, jobSet: true, since: long, wantJobSet: "suspended"},
		"a start that may be on its way":                         {job: false, said: false, jobSet: true, since: now, wantWait: true, wantJobSet: "suspended"},
		"a start that Trainer could not do":                      {job: false, said: false, jobSet: true, since: long, wantJobSet: "gone", wantEvent: "made again"},
		"the same with Trainer 2.3, which tries again":           {job: false, said: false, jobSet: true, since: long, served: trainjob.Trainer23, wantWait: true, wantJobSet: "suspended"},
		"the same, which renders another JobSet of the snapshot": {job: false, said: false, jobSet: true, since: long, served: trainjob.Trainer23, refused: now, wantJobSet: "gone", wantEvent: "made again"},
		"the same, which was refused before it resumed":          {job: false, said: false, jobSet: true, since: long, served: trainjob.Trainer23, refused: long.Add(-time.Second), wantWait: true, wantJobSet: "suspended"},
		"one whose downloads are done":                           {job: false, said: false, jobSet: true, since: long, done: true, wantJobSet: "suspended", wantEvent: "what its Jobs have done"},
		"one that somebody suspended later":                      {job: false, said: false, jobSet: true, since: long, changeJobSet: func(js *jobsetapi.JobSet) { js.Status.Conditions[0].LastTransitionTime = metav1.NewTime(now) }, wantJobSet: "suspended"},
		"one that would delete volumes":                          {job: false, said: false, jobSet: true, since: long, changeJobSet: volumes(nil), wantJobSet: "suspended", wantEvent: "its volume claims"},
		"one that keeps its volumes":                             {job: false, said: false, jobSet: true, since: long, changeJobSet: volumes(&jobsetapi.VolumeRetentionPolicy{WhenDeleted: new(jobsetapi.RetentionPolicyRetain)}), wantJobSet: "suspended", wantEvent: "its volume claims"},
		"a job that is not Kueue's":                              {job: true, said: true, jobSet: false, since: long, change: withoutQueue, wantJobSet: "runs"},
		"the JobSet of a former TrainJob":                        {job: true, said: true, jobSet: false, since: long, changeJobSet: func(js *jobsetapi.JobSet) { js.OwnerReferences[0].UID = "former" }, wantJobSet: "runs"},
		"a stop of a deleted job that Trainer could not do":      {job: true, said: true, jobSet: false, since: long, change: isDeleted, wantJobSet: "suspended", wantEvent: "was suspended for Trainer"},
		"a failed job that Trainer could not stop":               {job: true, said: true, jobSet: false, since: long, change: ended(trainer.TrainJobFailed), wantJobSet: "suspended", wantEvent: "was suspended for Trainer"},
		"a failed job whose JobSet is over":                      {job: true, said: true, jobSet: false, since: long, change: ended(trainer.TrainJobFailed), changeJobSet: func(js *jobsetapi.JobSet) { js.Status.TerminalState = "Failed" }, wantJobSet: "runs"},
		"a failed job that is not suspended yet":                 {job: false, said: false, jobSet: true, since: long, change: ended(trainer.TrainJobFailed), wantJobSet: "suspended"},
		"a finished job is beyond stop or start":                 {job: true, said: true, jobSet: false, since: long, change: ended(trainer.TrainJobComplete), wantJobSet: "runs"},
	}, func(t *testing.T, tc row) {
		stored, js := disagreeing(tc.job, tc.said, tc.jobSet, tc.since)
		r, recorder := newReconciler(t, kit.With(stored, tc.change), kit.With(js, tc.changeJobSet))
		if !tc.refused.IsZero() {
			expect.NoError(t, r.deps.client.Create(t.Context(), inttest.Refusal(tc.refused, stored.UID, "field is immutable")))
		}
		if tc.done {
			// Suspended with the JobSet, it has no pods by now.
			child := kit.ChildJob(js, "download", kit.Succeeded(1))
			child.Spec.Suspend = new(true)
			expect.NoError(t, r.deps.client.Create(t.Context(), child))
		}
		inttest.Reload(t, r.deps.client, stored)
		if tc.stale {
			stored.ResourceVersion, stored.Generation = "0", stored.Generation+1
		}
		r.deps.Describer = r.deps.For(cmp.Or(tc.served, trainjob.Trainer22))
		r.deps.expectations = testenv.LedSince(tc.led)
		got := correctDrift(t.Context(), jobOf(t, r, stored))
		expect.NoError(t, got.err)
		expect.Same(t, "correctDrift waits", tc.wantWait, got.again > 0)
		expect.Same(t, "Unexpected state of the JobSet", tc.wantJobSet, jobSetState(t, r.deps.client, js))
		wantTold(t, eventsSoFar(recorder, ""), tc.wantEvent)
	})
}

// JobSet suspends no Job while it cannot make another one.
func TestJobsThatJobSetLeavesRunningAreSuspended(t *testing.T) {
	type row struct {
		since     time.Duration
		job       func(*trainjob.TrainJob)
		child     func(*batchv1.Job)
		stale     bool
		runs      bool
		refusal   error
		want      bool
		wantEvent string
	}
	expect.Rows(t, map[string]row{
		"JobSet is late":          {since: time.Minute, want: true, wantEvent: "was suspended for JobSet"},
		"the same in an old view": {since: time.Minute, stale: true},
		"JobSet may be about to":  {},
		"the Job has ended":       {since: time.Minute, child: kit.Completed},
		"it is another JobSet's":  {since: time.Minute, child: func(child *batchv1.Job) { child.OwnerReferences[0].UID = "other" }},
		"the job is not Kueue's":  {since: time.Minute, job: withoutQueue},
		"the job runs":            {since: time.Minute, runs: true},
		"it cannot be written":    {since: time.Minute, refusal: kit.Forbidden("jobs")},
	}, func(t *testing.T, tc row) {
		stored, js := disagreeing(!tc.runs, !tc.runs, !tc.runs, time.Now().Add(-tc.since))
		child := kit.ChildJob(js, "download", kit.Succeeded(1), tc.child)
		child.UID = "child"
		r, recorder := newReconciler(t, kit.With(stored, tc.job), js, child)
		if tc.stale {
			stored.ResourceVersion, stored.Generation = "0", stored.Generation+1
		}
		r.deps.client = kit.Writes(r.deps.client, func(w kit.Write) error {
			data := expect.Must(w.Patch.Data(w.Object))(t)
			expect.That(t, strings.Contains(string(data), `"uid":"child"`), "The next Job of that name may be suspended: %s", data)
			return tc.refusal
		})
		got := correctDrift(t.Context(), jobOf(t, r, stored))
		expect.That(t, errors.Is(got.err, tc.refusal), "correctDrift() = %+v", got)
		expect.Same(t, "It looks again", tc.since == 0 || tc.stale, got.again > 0)
		inttest.Reload(t, r.deps.client, child)
		expect.Same(t, "The Job is suspended", tc.want, ptr.Deref(child.Spec.Suspend, false))
		wantTold(t, eventsSoFar(recorder, ""), tc.wantEvent)
	})
}

// A snapshot that a user deleted is taken again, of the runtime as it is then.
func TestRestartOfAnotherRuntimeQueuesAgain(t *testing.T) {
	type row struct {
		admitted              int32
		wantSuspended         bool
		wantJobSet, wantEvent string
	}
	expect.Rows(t, map[string]row{
		"it asks for what the job was admitted for": {admitted: 1, wantJobSet: "gone", wantEvent: jobevents.ReasonJobSetOutdated},
		"it asks for another number of pods":        {admitted: 8, wantSuspended: true, wantJobSet: "suspended", wantEvent: jobevents.ReasonRequeued},
	}, func(t *testing.T, tc row) {
		stored, js := disagreeing(false, false, true, time.Now().Add(-time.Minute))
		r, recorder := newReconciler(t, stored, js)
		r.deps.Describer = r.deps.For(trainjob.Trainer22)
		createDescribed(t, r, stored, kit.Admitted, func(wl *kueue.Workload) { wl.Spec.PodSets[0].Count = tc.admitted })
		j := jobOf(t, r, stored)
		expect.NoError(t, restart(t.Context(), j, js))
		got := jobSetState(t, r.deps.client, js)
		expect.That(t, got == tc.wantJobSet && j.IsSuspended() == tc.wantSuspended,
			"The JobSet is %s, the job suspended: %t; want %s, %t", got, j.IsSuspended(), tc.wantJobSet, tc.wantSuspended)
		wantTold(t, eventsSoFar(recorder, ""), tc.wantEvent)
	})
}

// Somebody's webhook may have every JobSet ask for more than its TrainJob does.
func TestDriftedJobSetIsReplacedOnce(t *testing.T) {
	type row struct {
		age                   time.Duration
		change                func(*batchv1.Job)
		copied                func(*kueue.Workload)
		wantJobSet, wantQuota bool
		wantTold              string
	}
	expect.Rows(t, map[string]row{
		"an old JobSet is replaced":                 {age: time.Hour, wantQuota: true, wantTold: jobevents.ReasonJobSetOutdated},
		"a new one has the job give its quota back": {age: time.Second, wantJobSet: true, wantTold: jobevents.ReasonCannotStart},
		"so has one whose Jobs have done something": {age: time.Hour, change: kit.Completed, wantJobSet: true, wantTold: "delete the TrainJob, and what its Jobs have done with it"},
		"a copy waits as long as for any start":     {age: time.Second, copied: kit.All(kit.Copied, kit.Since(time.Now())), wantJobSet: true, wantQuota: true},
	}, func(t *testing.T, tc row) {
		stored, js := suspendedJob()
		js.CreationTimestamp = metav1.NewTime(time.Now().Add(-tc.age))
		js.Spec.ReplicatedJobs = kit.ReplicatedJobs("node", 2)
		wl := inttest.WorkloadOf(stored, kit.Admitted, tc.copied)
		child := kit.ChildJob(js, "node", tc.change)
		child.Spec.Suspend = new(true)
		r, recorder := newReconciler(t, js, child, wl)
		r.deps.startTimeout = time.Minute
		j := jobOf(t, r, stored)
		j.decision.excess = "replicated job node has 2 pods instead of 1"
		expect.NoError(t, renewExceeding(t.Context(), j))
		expect.Same(t, "The JobSet is kept", tc.wantJobSet, inttest.Exists(t, r.deps.client, js))
		expect.Same(t, "The quota is kept", tc.wantQuota, inttest.Exists(t, r.deps.client, wl))
		wantTold(t, eventsSoFar(recorder, ""), tc.wantTold)
	})
}

func TestAwaitReading(t *testing.T) {
	long, now := time.Now().Add(-time.Minute), time.Now()
	type row struct {
		// made and written are when the JobSet was made and we wrote the job.
		made, written time.Time
		// admitted is for how long the job is.
		admitted time.Duration
		volumes  bool
		// runs is set where its JobSet is not suspended yet, shows where that shows our part.
		runs, shows bool
		wantJobSet  string
		wantEvents  []string
	}
	expect.Rows(t, map[string]row{
		"a JobSet that was made just now":                {made: now, written: long, wantJobSet: "suspended", wantEvents: []string{jobevents.ReasonTrainerBehind}},
		"a job that was written just now":                {made: long, written: now, wantJobSet: "suspended", wantEvents: []string{jobevents.ReasonTrainerBehind}},
		"a JobSet that stays as it is":                   {made: long, written: long, wantJobSet: "gone", wantEvents: []string{jobevents.ReasonTrainerBehind, jobevents.ReasonJobSetOutdated}},
		"one that was made when the job waited for long": {made: long, written: long.Add(-time.Second), admitted: 3 * time.Minute, wantJobSet: "suspended", wantEvents: []string{jobevents.ReasonTrainerBehind}},
		"one that runs yet":                              {made: long, written: long, runs: true, wantJobSet: "runs", wantEvents: []string{jobevents.ReasonTrainerBehind}},
		"one that shows our part":                        {made: long, written: long, shows: true, wantJobSet: "suspended", wantEvents: []string{jobevents.ReasonTrainerBehind}},
		"one that would take volume claims with it":      {made: long, written: long, volumes: true, wantJobSet: "suspended", wantEvents: []string{jobevents.ReasonTrainerBehind, jobevents.ReasonJobSetOutdated}},
	}, func(t *testing.T, tc row) {
		stored, js := disagreeing(true, true, true, long)
		js.CreationTimestamp = metav1.NewTime(tc.made)
		js.Spec.Suspend = new(!tc.runs)
		if tc.shows {
			js.Spec.ReplicatedJobs = make([]jobsetapi.ReplicatedJob, 1)
			js.Spec.ReplicatedJobs[0].Template.Spec.Template.Labels = map[string]string{patch.GatedLabel: "true"}
		}
		if tc.volumes {
			js.Spec.VolumeClaimPolicies = []jobsetapi.VolumeClaimPolicy{{}}
		}
		r, recorder := newReconciler(t, stored, js, inttest.WorkloadOf(stored, kit.Admitted, since(tc.admitted)))
		r.deps.expectations, r.deps.trainer = testenv.LedSince(tc.written), testenv.Served(t, trainjob.Trainer22)
		deps := r.deps.of(expect.Must(r.deps.trainer.Served())(t))
		expect.NoError(t, awaitRollout(t.Context(), jobOf(t, &reconciler{deps: deps}, stored)))
		expect.Same(t, "Unexpected state of the JobSet", tc.wantJobSet, jobSetState(t, deps.client, js))
		got := expect.Each(eventsSoFar(recorder, ""), func(event string) string { return strings.Fields(event)[1] })
		expect.Same(t, "Unexpected events", tc.wantEvents, got)
	})
}

// A JobSet that asks for more keeps the job from its start until it is made again.
func TestStartOnTooMuchHasItsJobSetMadeAgain(t *testing.T) {
	stored, js := suspendedJob()
	js.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour))
	r, _ := newReconciler(t, stored, js, inttest.WorkloadOf(stored, kit.Admitted))
	j := jobOf(t, r, stored)
	j.decision = decision{made: true, err: errOutdated, excess: "too many"}
	expect.That(t, errors.Is(followUp(t.Context(), j).err, errOutdated), "The start counts as done")
	expect.Same(t, "Unexpected JobSet", "gone", jobSetState(t, r.deps.client, js))
}

func TestAwaitTrainer(t *testing.T) {
	type row struct {
		// suspended: the TrainJob, what Trainer says of it, the JobSet.
		job, said, jobSet bool
		// written is how long ago the TrainJob was.
		written time.Duration
		// begun is set where a start is under way that was taken back.
		begun bool
		// changed is set where it is seen to be changed just now.
		changed  bool
		change   func(*trainjob.TrainJob)
		wantWait bool
		wantTold string
	}
	expect.Rows(t, map[string]row{
		"Trainer has heard":                         {job: true, said: true, jobSet: true, written: time.Hour},
		"what it heard is for somebody else":        {job: true, said: true, jobSet: false, written: time.Hour},
		"a stop just now":                           {job: true, said: false, jobSet: false, wantWait: true},
		"a stop that Trainer may still undo":        {job: true, said: true, jobSet: true, written: time.Hour, begun: true, wantWait: true},
		"a stop long ago":                           {job: true, said: false, jobSet: false, written: time.Hour, wantWait: true, wantTold: "still runs"},
		"a stop by somebody else just now":          {job: true, said: false, jobSet: false, written: time.Hour, changed: true, wantWait: true},
		"a start just now":                          {job: false, said: true, jobSet: true, wantWait: true},
		"a start long ago":                          {job: false, said: true, jobSet: true, written: time.Hour, wantWait: true, wantTold: "is still suspended"},
		"a start that the JobSet shows already":     {job: false, said: true, jobSet: false, written: time.Hour},
		"a job that is not Kueue's":                 {job: true, said: false, jobSet: false, written: time.Hour, change: withoutQueue},
		"a stop that the JobSet shows, with a gate": {job: true, said: false, jobSet: true, written: time.Hour},
	}, func(t *testing.T, tc row) {
		stored, js := disagreeing(tc.job, tc.said, tc.jobSet, time.Now())
		r, recorder := newReconciler(t, kit.With(stored, tc.change), js)
		r.deps.expectations = testenv.LedSince(time.Now().Add(-tc.written))
		if tc.begun {
			r.deps.expectations.ExpectResume(stored)
			stored.Generation++
		}
		if tc.changed {
			r.deps.expectations.Satisfied(stored)
		}
		wait := awaitTrainer(t.Context(), jobOf(t, r, stored)).again
		expect.That(t, (wait > 0) == tc.wantWait && wait <= trainerSilent, "awaitTrainer() = %s; want to wait: %t", wait, tc.wantWait)
		wantTold(t, eventsSoFar(recorder, ""), tc.wantTold)
	})
}

func suspended(job *batchv1.Job) { job.Spec.Suspend = new(true) }

// What somebody changed since we looked is looked at again first.
func TestJobSetThatChangedMeanwhileStays(t *testing.T) {
	stored, js := disagreeing(false, false, true, time.Now().Add(-time.Minute))
	r, _ := newReconciler(t, stored, js)
	j := jobOf(t, r, stored)
	known := j.jobSet().DeepCopy()
	expect.NoError(t, r.deps.client.Update(t.Context(), kit.With(known.DeepCopy(), func(js *jobsetapi.JobSet) { js.Spec.Suspend = new(false) })))
	err := renewJobSet(t.Context(), j, known, "")
	expect.That(t, apierrors.IsConflict(err), "a JobSet that runs by now is deleted: %v", err)
}

// No pod outlives its JobSet.
func TestPodsGoBeforeTheirJobSet(t *testing.T) {
	stored, js := disagreeing(false, false, true, time.Now().Add(-time.Minute))
	r, _ := newReconciler(t, stored, js)
	var asked client.DeleteOptions
	r.deps.client = interceptor.NewClient(r.deps.client.(client.WithWatch), interceptor.Funcs{
		Delete: func(_ context.Context, _ client.WithWatch, _ client.Object, opts ...client.DeleteOption) error {
			asked.ApplyOptions(opts)
			return nil
		},
	})
	expect.NoError(t, renewJobSet(t.Context(), jobOf(t, r, stored), js, ""))
	expect.Same(t, "propagation", metav1.DeletePropagationForeground, ptr.Deref(asked.PropagationPolicy, ""))
}
