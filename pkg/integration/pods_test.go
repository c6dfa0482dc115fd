// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"errors"
	"strings"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/testenv"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// What says that the pods are ready is reset first, and the quota of an evicted job follows
// with the next view of its Workload: none of its writes is a conflict.
func TestEvictionResetsPodsReadyBeforeItFreesQuota(t *testing.T) {
	stored, js := disagreeing(true, true, true, time.Now().Add(-time.Minute))
	wl := inttest.WorkloadOf(stored, kit.Held, preempted, kit.Is(kueue.WorkloadPodsReady, kueue.WorkloadStarted), kit.Admitted)
	r, _ := newReconciler(t, stored, js, wl)
	said := saidOf(r)
	r.deps.kueue = testenv.Kueue(testenv.WaitsForPods)

	for range 2 {
		// The second one has the same view as the first.
		reconcileOnce(t, r)
	}
	expect.Same(t, "Unexpected writes", []string{"PodsReady False: WaitForStart"}, *said)
	changeWorkload(t, r.deps.client, kit.Isnt(kueue.WorkloadPodsReady, kueue.WorkloadWaitForStart))
	reconcileOnce(t, r)
	expect.That(t, strings.Contains(strings.Join(*said, ""), "QuotaReserved False"), "After the next view %q is said, want the quota to be given back", *said)
}

// Kueue may admit nothing, in no queue, while a Workload that holds quota is not ready.
func TestPodsThatAreLeftBlockNoAdmission(t *testing.T) {
	ready, lost := kit.Is(kueue.WorkloadPodsReady, kueue.WorkloadStarted), kit.Isnt(kueue.WorkloadPodsReady, kueue.WorkloadWaitForRecovery)
	pod := []client.Object{inttest.PodOf("ns", "job")}
	moved := func(wl *kueue.Workload) { wl.Spec.QueueName = "another" }
	ofFormer := kit.All(deleted, func(wl *kueue.Workload) { wl.OwnerReferences[0].UID = "former" })
	limited := func(wl *kueue.Workload) { wl.Spec.MaximumExecutionTimeSeconds = new(int32(60)) }
	type row struct {
		job  func(*trainjob.TrainJob)
		says func(*kueue.Workload)
		pods []client.Object
		want []string
	}
	expect.Rows(t, map[string]row{
		"a preempted job was ready, and a pod is left":     {says: kit.All(preempted, ready), pods: pod},
		"a preempted job was not ready, and a pod is left": {says: kit.All(preempted, lost), pods: pod, want: []string{"PodsReady True: PodsLeft"}},
		"its last pod is gone":                             {says: kit.All(preempted, ready), want: []string{"PodsReady False: WaitForStart"}},
		"a failed job, and a pod is left":                  {job: ended(trainer.TrainJobFailed), says: lost, pods: pod, want: []string{"PodsReady True: PodsLeft"}},
		"one that its user holds, and a pod is left":       {says: kit.All(lost, moved), pods: pod, want: []string{"PodsReady True: PodsLeft"}},
		"one that is deleted, and a pod is left":           {job: isDeleted, says: lost, pods: pod, want: []string{"PodsReady True: PodsLeft"}},
		"one that was made again, and a pod is left":       {says: kit.All(lost, ofFormer), pods: pod, want: []string{"PodsReady True: PodsLeft"}},
		"one of another time limit, and a pod is left":     {says: kit.All(lost, limited), pods: pod, want: []string{"PodsReady True: PodsLeft"}},
	}, func(t *testing.T, tc row) {
		stored, js := disagreeing(true, true, true, time.Now().Add(-time.Minute))
		wl := inttest.WorkloadOf(kit.With(stored, tc.job), tc.says, kit.Admitted, kit.Held)
		r, _ := newReconciler(t, append(tc.pods, stored, js, wl)...)
		said := saidOf(r)
		r.deps.kueue = testenv.Kueue(testenv.BlocksAdmission)
		for range 2 {
			// The second one has the same view as the first.
			reconcileOnce(t, r)
		}
		expect.Same(t, "Unexpected PodsReady", tc.want, *said)
	})
}

// Trainer tells of the counts of pods when it comes by: until it has resumed a job, they are those of
// the run before.
func TestPodsAreNotReadyBeforeTrainerHasResumed(t *testing.T) {
	type row struct {
		said, jobSet, unsaid, want bool
	}
	expect.Rows(t, map[string]row{
		"Trainer has not come by":                  {said: true, jobSet: true},
		"Trainer has resumed the JobSet alone":     {said: true},
		"Trainer has said that before it was so":   {jobSet: true},
		"Trainer has resumed it":                   {want: true},
		"Trainer has never seen the job suspended": {unsaid: true, want: true},
	}, func(t *testing.T, tc row) {
		stored, js := disagreeing(false, tc.said, tc.jobSet, time.Now())
		if tc.unsaid {
			stored.Status.Conditions = nil
		}
		js.Spec.ReplicatedJobs = kit.ReplicatedJobs("node", 1)
		stored.Status.JobsStatus = []trainer.JobStatus{{Name: "node", Ready: new(int32(1))}}
		r, _ := newReconciler(t, js)
		expect.Same(t, "Unexpected PodsReady", tc.want, jobOf(t, r, stored).PodsReady(t.Context(), nil))
	})
}

// The counts of pods are those of the run before until Trainer has told of this one.
func TestPodsReadyIsOfARunThatTrainerHasHeardOf(t *testing.T) {
	type row struct {
		suspended bool
		// started is where this look has sent the job.
		started string
		want    []string
	}
	expect.Rows(t, map[string]row{
		"it runs":                      {want: []string{"PodsReady True: Started"}},
		"this look has started it":     {started: "Admitted"},
		"it is stopped, with its pods": {suspended: true},
	}, func(t *testing.T, tc row) {
		stored, js := disagreeing(tc.suspended, false, false, time.Now())
		js.Spec.ReplicatedJobs = kit.ReplicatedJobs("node", 1)
		stored.Status.JobsStatus = []trainer.JobStatus{{Name: "node", Ready: new(int32(1))}}
		r, _ := newReconciler(t, stored, js, inttest.WorkloadOf(stored, kit.Admitted))
		r.deps.kueue = testenv.Kueue(testenv.WaitsForPods)
		said, j := saidOf(r), jobOf(t, r, stored)
		j.decision.started = tc.started
		expect.NoError(t, reportPodsReady(t.Context(), j).err)
		expect.Same(t, "Unexpected PodsReady", tc.want, *said)
	})
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

// Nobody waits for a GPU because the account of who had it is not saved.
func TestQuotaDoesNotWaitForTheLedger(t *testing.T) {
	stored, js := suspendedJob()
	// The ledger has not read what was saved yet, so it saves nothing.
	r, _ := newReconciler(t, stored, js, inttest.WorkloadOf(stored, kit.Admitted, preempted))
	j := jobOf(t, r, stored)
	expect.Must(j.Stop(t.Context(), r.deps.client, nil, jobframework.StopReasonWorkloadEvicted, ""))(t)
	expect.That(t, !j.IsActive(), "The quota of a job without pods stays with it")
}
