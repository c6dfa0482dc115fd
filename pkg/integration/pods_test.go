// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"strings"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/testenv"
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
