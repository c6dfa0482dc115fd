// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"slices"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/podsets"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// ofClass returns a change that sets the priority class of a TrainJob.
func ofClass(name string) func(*trainjob.TrainJob) {
	return func(job *trainjob.TrainJob) { job.Labels[kit.PriorityLabel] = name }
}

// withoutQueue removes the queue label of a TrainJob.
func withoutQueue(job *trainjob.TrainJob) { job.Labels = nil }

// A label that jobframework stumbles over must not keep it from letting quota go.
func TestQuotaGoesBackWhateverTheLabelsSay(t *testing.T) {
	complete, failed := ended(trainer.TrainJobComplete), ended(trainer.TrainJobFailed)
	evicted := kit.Is(kueue.WorkloadEvicted, kueue.WorkloadEvictedByPreemption)
	tests := map[string]struct {
		suspended bool
		job       func(*trainjob.TrainJob)
		wl        func(*kueue.Workload)
		deleted   bool
		// want is the condition by which the quota goes; with deleted, the Workload goes.
		want string
	}{
		"complete, of a class that is not there":              {job: kit.All(complete, ofClass("gone")), want: kueue.WorkloadFinished},
		"failed, of a class that is not there":                {suspended: true, job: kit.All(failed, ofClass("gone")), want: kueue.WorkloadFinished},
		"failed, without its queue":                           {suspended: true, job: kit.All(failed, withoutQueue), want: kueue.WorkloadFinished},
		"failed and preempted, without its queue":             {suspended: true, job: kit.All(failed, withoutQueue), wl: evicted, want: kueue.WorkloadFinished},
		"preempted, without its queue":                        {suspended: true, job: withoutQueue, wl: evicted, deleted: true},
		"its Workload is deleted, its class is not there":     {suspended: true, job: ofClass("gone"), deleted: true},
		"failed, its Workload is deleted, without its queue":  {suspended: true, job: kit.All(failed, withoutQueue), deleted: true},
		"suspended, its Workload is deleted, without a queue": {suspended: true, job: withoutQueue, deleted: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			stored, js := disagreeing(tc.suspended, tc.suspended, tc.suspended, time.Now().Add(-time.Hour))
			kit.With(stored, tc.job)
			js.Status.TerminalState = trainer.TrainJobFailed
			wl := inttest.WorkloadOf(stored, kit.Admitted, kit.Held, tc.wl)
			wl.Spec.QueueName = "q"
			if stored.Labels[kit.PriorityLabel] != "" {
				wl.Spec.PriorityClassRef = kueue.NewWorkloadPriorityClassRef("low")
			}
			r, _ := newReconciler(t, stored, js, wl, kit.Priority("low", 1))
			if tc.deleted {
				expect.NoError(t, r.deps.client.Delete(t.Context(), wl))
			}
			plain := r.deps.client
			var written []string
			r.deps.client = statusWrites(plain, func(w kit.Write) {
				for _, said := range w.Object.(*kueue.Workload).Status.Conditions {
					written = append(written, said.Type)
				}
			})
			for range 4 {
				// What came of a write is not seen before the next look.
				_, _ = look(t, r, jobKey)
			}
			if tc.deleted {
				expect.That(t, !inttest.Exists(t, plain, wl), "The Workload keeps its quota")
				return
			}
			expect.That(t, slices.Contains(written, tc.want), "Written are conditions %v, want %s", written, tc.want)
		})
	}
}

// What waits for a queue goes by the one that it names now.
func TestQueueOfWhatHoldsQuota(t *testing.T) {
	evicted := kit.Is(kueue.WorkloadEvicted, kueue.WorkloadEvictedByPreemption)
	for name, tc := range map[string]struct {
		runs    bool
		job     func(*trainjob.TrainJob)
		wl      func(*kueue.Workload)
		deleted bool
		want    string
	}{
		"it runs":                         {runs: true, want: "q"},
		"it has failed":                   {job: ended(trainer.TrainJobFailed), want: "q"},
		"its Workload is deleted":         {deleted: true, want: "q"},
		"its Workload is deactivated":     {wl: kit.Deactivated, want: "q"},
		"it is about to start":            {},
		"it waits for admission checks":   {wl: kit.Isnt(kueue.WorkloadAdmitted, "")},
		"it was preempted and has queued": {wl: evicted},
	} {
		t.Run(name, func(t *testing.T) {
			stored, js := disagreeing(!tc.runs, !tc.runs, !tc.runs, time.Now())
			kit.With(stored, kit.All(withoutQueue, tc.job))
			wl := inttest.WorkloadOf(stored, kit.Admitted, kit.Held, tc.wl)
			wl.Spec.QueueName = "q"
			r, _ := newReconciler(t, stored, js, wl)
			if tc.deleted {
				expect.NoError(t, r.deps.client.Delete(t.Context(), wl))
			}
			j := jobOf(t, r, stored)
			expect.NoError(t, alignWithWorkload(t.Context(), j).err)
			expect.Same(t, "Unexpected queue", tc.want, j.Labels[kit.QueueLabel])
		})
	}
}

// Kueue refuses to have it back.
func TestAdmissionGateIsNotBroughtBack(t *testing.T) {
	const gate = "kueue.x-k8s.io/admission-gated-by"
	for name, tc := range map[string]struct {
		admitted bool
		want     string
	}{
		"on a Workload that holds quota": {admitted: true},
		"on one that waits":              {want: "example.com/gate"},
	} {
		t.Run(name, func(t *testing.T) {
			stored, js := suspendedJob()
			stored.Annotations = map[string]string{gate: "example.com/gate"}
			wl := inttest.WorkloadOf(stored)
			if tc.admitted {
				giveQuota(wl)
			}
			r, _ := newReconciler(t, stored, js, wl)
			j := jobOf(t, r, stored)
			expect.NoError(t, alignWithWorkload(t.Context(), j).err)
			expect.Same(t, "Unexpected annotations", map[string]string{gate: tc.want}, j.Annotations)
		})
	}
}

// jobframework leaves an elastic job running that is not admitted.
func TestElasticJobIsStopped(t *testing.T) {
	stored, js := disagreeing(false, false, false, time.Now().Add(-time.Minute))
	stored.Annotations = map[string]string{"kueue.x-k8s.io/elastic-job": "true"}
	r, _ := newReconciler(t, stored, js)
	for range 3 {
		_, _ = look(t, r, jobKey)
	}
	expect.That(t, storedJob(t, r).Suspended(), "It runs without quota")
}

// Caches may not know of a pod that is left, whatever it is that quota goes back for.
func TestPodsAreAskedForWhereTheJobChanged(t *testing.T) {
	for name, tc := range map[string]struct {
		count int32
		want  string
	}{
		"it asks for the same": {count: 1},
		"it asks for more":     {count: 4, want: releasedPodSets},
	} {
		t.Run(name, func(t *testing.T) {
			stored, js := suspendedJob()
			r, _ := newReconciler(t, stored, js)
			r.deps.Defaults = podsets.FixedDefaults(servedDefaults(t))
			podSets := expect.Must(jobOf(t, r, stored).describe(t.Context()))(t)
			podSets[0].Count = tc.count
			wl := inttest.WorkloadOf(stored, kit.Admitted, kit.Held)
			wl.Spec.QueueName, wl.Spec.PodSets = "q", podSets
			expect.NoError(t, r.deps.client.Create(t.Context(), wl))
			got := releases(t.Context(), jobOf(t, r, stored))
			expect.That(t, (got == nil) == (tc.want == "") && (got == nil || got.why == tc.want), "It releases %+v, want %q", got, tc.want)
		})
	}
}
