// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobclient"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

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

// A user who writes to the TrainJob all the time shall not keep the manager from looking at its Workload.
func TestAConflictOverTheJobSaysNothingOfItsWorkload(t *testing.T) {
	stored, js := disagreeing(true, true, true, time.Now())
	r, _ := newReconciler(t, stored, js, inttest.WorkloadOf(stored))
	j := jobOf(t, r, stored)
	_, err := j.answer(t.Context(), result{err: apierrors.NewConflict(jobclient.Resource, stored.Name, errors.New("overtaken"))})
	expect.NoError(t, err)
	expect.That(t, !r.deps.expectations.Outdated(j.key, j.view.Workloads), "The Workload counts as an old view")
}

// The cache has an admission that the API server has not any more.
func TestNoStartOnTheWordOfTheCache(t *testing.T) {
	stored, js := suspendedJob()
	r, _ := newReconciler(t, stored, js, inttest.WorkloadOf(stored, kit.Admitted))
	r.deps.live = inttest.Fake(stored.DeepCopy(), js.DeepCopy(), inttest.WorkloadOf(stored)).Build()
	err := jobOf(t, r, stored).RunWithPodSetsInfo(t.Context(), nil, nil)
	expect.That(t, errors.Is(err, errOutdated), "RunWithPodSetsInfo() = %v", err)
}

// The cache has not heard of an admission, and nobody takes it back.
func TestNoStopOnTheWordOfTheCache(t *testing.T) {
	for _, admitted := range []bool{true, false} {
		stored, js := disagreeing(false, false, false, time.Now())
		r, _ := newReconciler(t, stored, js, inttest.WorkloadOf(stored))
		r.deps.live = inttest.Fake().Build()
		if admitted {
			r.deps.live = inttest.Fake(inttest.WorkloadOf(stored, kit.Admitted)).Build()
		}
		_, err := jobOf(t, r, storedJob(t, r)).Stop(t.Context(), nil, nil, jobframework.StopReasonNotAdmitted, "")
		expect.That(t, errors.Is(err, errOutdated) == admitted, "Stop() = %v; the API server has the admission: %t", err, admitted)
		expect.Same(t, "It runs", admitted, !storedJob(t, r).Suspended())
	}
}

// The cache has not heard of a start by the leader before, which Trainer has yet to see, and the gate is there by it.
func TestNoQuotaGoesBackOnTheWordOfTheCache(t *testing.T) {
	expect.Rows(t, map[string]expect.Row[func(*trainjob.TrainJob), bool]{
		"it is as the cache has it": {},
		"it was started since":      {In: func(job *trainjob.TrainJob) { job.Generation, job.Spec.Suspend = 5, new(false) }, Want: true},
		"it was started and stopped": {In: func(job *trainjob.TrainJob) {
			job.Generation = 5
			expect.NoError(t, patch.Stamp(job.Spec.RuntimePatches, metav1.Now()))
		}, Want: true},
		"half of its start is written": {In: func(job *trainjob.TrainJob) { place(t, job, patch.Placement{Name: "node"}) }, Want: true},
		"its user changes it": {In: func(job *trainjob.TrainJob) {
			job.Generation = 5
			job.Spec.RuntimePatches = append(job.Spec.RuntimePatches, trainjob.RuntimePatch{Manager: "example.com/me"})
		}},
		"another one has its name": {In: func(job *trainjob.TrainJob) { job.UID = "another" }, Want: true},
	}, func(t *testing.T, tc expect.Row[func(*trainjob.TrainJob), bool]) {
		stored, js := suspendedJob()
		stored.Generation = 4
		place(t, stored, patch.Gated("node"))
		r, _ := newReconciler(t, stored, js, inttest.WorkloadOf(stored, kit.Admitted, preempted))
		r.deps.live = inttest.PodsByPhase(inttest.Fake(kit.With(stored.DeepCopy(), tc.In)).Build())
		expect.Same(t, "It may have pods", tc.Want, jobOf(t, r, stored).active(t.Context()))
	})
}

// Pods beyond the quota would run as soon as it is resumed. Where that is what Trainer makes of the job now, it queues for it.
func TestNoStartOfAJobSetThatAsksForMore(t *testing.T) {
	type row struct {
		jobSet func(*jobsetapi.JobSet)
		// pods are those of the JobSet. By its runtime, the TrainJob has one.
		pods, charged int32
		requeued      bool
	}
	expect.Rows(t, map[string]row{
		"it has more pods than its TrainJob":        {pods: 2, charged: 1},
		"it takes any pods for its own":             {pods: 1, charged: 1, jobSet: func(js *jobsetapi.JobSet) { js.Spec.ReplicatedJobs[0].Template.Spec.ManualSelector = new(true) }},
		"its TrainJob asks for another number, too": {pods: 3, charged: 2, requeued: true},
	}, func(t *testing.T, tc row) {
		stored, _ := suspendedJob()
		js := kit.With(inttest.JobSetOf(stored, true, kit.ReplicatedJobs("node", 1)...), tc.jobSet)
		js.Spec.ReplicatedJobs[0].Template.Spec.Parallelism = &tc.pods
		r, _ := newReconciler(t, stored, js)
		r.deps.Defaults = servedDefaults(t)
		wl := inttest.WorkloadOf(stored, kit.Admitted)
		wl.Spec.PodSets = expect.Must(jobOf(t, r, stored).describe(t.Context()))(t)
		wl.Spec.PodSets[0].Count = tc.charged
		create(t, r, wl)
		j := jobOf(t, r, stored)
		err := j.RunWithPodSetsInfo(t.Context(), nil, nil)
		expect.That(t, errors.Is(err, errOutdated) && j.IsSuspended(), "RunWithPodSetsInfo() = %v", err)
		expect.Same(t, "The JobSet is to be made again", !tc.requeued, j.decision.excess != "")
		expect.Same(t, "It queues again", tc.requeued, !inttest.Exists(t, r.deps.client, wl))
	})
}

// JobSet says that pods are there, and the API server does not answer whether that is so.
func TestPodsThatMayBeThereAreNotForgotten(t *testing.T) {
	stored, js := disagreeing(true, true, true, time.Now().Add(-time.Hour))
	js.Status.ReplicatedJobsStatus = []jobsetapi.ReplicatedJobStatus{{Name: "node", Active: 1}}
	r, _ := newReconciler(t, stored, js)
	expect.That(t, !jobOf(t, r, stored).active(t.Context()), "A job without pods has some")
	r.deps.live = kit.Lists(r.deps.live, func(client.ObjectList) error { return errors.New("away") })
	expect.That(t, jobOf(t, r, stored).active(t.Context()), "A job whose pods cannot be listed has none")
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

// MultiKueue takes every other end of a copy for that of the job.
func TestDeletedCopyThatStaysIsOutOfSync(t *testing.T) {
	wl := inttest.AdmittedOf("uid", deleted, func(wl *kueue.Workload) {
		wl.Labels, wl.Finalizers = map[string]string{kueue.MultiKueueOriginLabel: "o"}, []string{"example.com/mine"}
	})
	r, _ := onStatuses(t, wl)
	trainJob := inttest.Job("uid")
	trainJob.Spec.Suspend = new(true)
	expect.NoError(t, finishDeletedWorkloads(t.Context(), jobOf(t, r, trainJob)).err)
	inttest.Reload(t, r.deps.client, wl)
	expect.Same(t, "reason", kueue.WorkloadFinishedReasonOutOfSync, state.ReasonOf(wl, kueue.WorkloadFinished))
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

// Nobody waits for a GPU because the account of who had it is not saved.
func TestQuotaDoesNotWaitForTheLedger(t *testing.T) {
	stored, js := suspendedJob()
	// The ledger has not read what was saved yet, so it saves nothing.
	r, _ := newReconciler(t, stored, js, inttest.WorkloadOf(stored, kit.Admitted, preempted))
	j := jobOf(t, r, stored)
	expect.Must(j.Stop(t.Context(), r.deps.client, nil, jobframework.StopReasonWorkloadEvicted, ""))(t)
	expect.That(t, !j.IsActive(), "The quota of a job without pods stays with it")
}
