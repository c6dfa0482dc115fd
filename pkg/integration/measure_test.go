// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/prometheus/client_golang/prometheus"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// recorded returns what a registry has by kind or reason. Of pods that were freed it tells before the first.
func recorded(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	out := inttest.Recorded(t, registry, metrics.Kind, metrics.Reason)
	delete(out, metrics.UngatedPods.Name)
	return out
}

// measured is a TrainJob "llm" and its Workload, in the eyes of a manager.
type measured struct {
	t        *testing.T
	registry *prometheus.Registry
	r        *reconciler
	j        *job
	wl       *kueue.Workload
}

func newMeasured(t *testing.T) *measured {
	t.Helper()
	m := &measured{t: t, registry: prometheus.NewRegistry(), wl: inttest.AdmittedOf("a")}
	m.wl.Spec.QueueName, m.wl.Status.Admission.ClusterQueue = "queue", "gpus"
	m.r, _ = newReconciler(t)
	m.r.deps.metrics = metrics.NewRecorder(m.registry, metrics.QueueLabels{LocalQueues: true})
	m.j = jobOf(t, m.r, inttest.Job("a"))
	says(func(*kueue.Workload) {})(m)
	return m
}

// says has the manager see a Workload that says something else.
func says(change func(*kueue.Workload)) func(*measured) {
	return func(m *measured) {
		change(m.wl)
		m.j.view.Workloads = []*kueue.Workload{m.wl.DeepCopy()}
	}
}

// admittedAgo is another admission.
func admittedAgo(ago time.Duration) func(*measured) {
	return says(func(wl *kueue.Workload) {
		apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadAdmitted).LastTransitionTime = metav1.NewTime(time.Now().Add(-ago))
	})
}

// resumes has the manager start the job.
func resumes(m *measured) { measureStart(m.j) }

// isSuspended has the manager see that somebody did it.
func isSuspended(m *measured) {
	m.j.Suspend()
	measureStopped(m.t.Context(), m.j)
}

// stops has the manager stop it.
func stops(reason jobframework.StopReason) func(*measured) {
	return func(m *measured) { measureStop(m.j, stopReason(m.j, reason)) }
}

func ready(m *measured)    { measureReady(m.j, func() bool { return true }) }
func notReady(m *measured) { measureReady(m.j, func() bool { return false }) }

// isAnother has somebody make another job of the name.
func isAnother(m *measured) {
	m.j, m.wl = jobOf(m.t, m.r, inttest.Job("b")), inttest.AdmittedOf("b")
	says(func(*kueue.Workload) {})(m)
}

func TestMeasured(t *testing.T) {
	const (
		first, again = "kueue_trainer_starts_total first", "kueue_trainer_starts_total again"
		untilStarted = "kueue_trainer_admitted_until_started_seconds"
		untilReady   = "kueue_trainer_started_until_ready_seconds"
		stopsTotal   = "kueue_trainer_stops_total "
	)
	preempted := says(kit.Is(kueue.WorkloadEvicted, kueue.WorkloadEvictedByPreemption))
	type steps []func(*measured)
	cases := map[string]struct {
		do   steps
		want map[string]float64
	}{
		"a start": {do: steps{resumes}, want: map[string]float64{first: 1, untilStarted: 1}},
		"its user stops it, and starts it again on the same admission": {do: steps{admittedAgo(time.Hour), resumes, isSuspended, resumes},
			want: map[string]float64{first: 1, again: 1, untilStarted: 1, stopsTotal + "SuspendedByUser": 1}},
		"a start on another admission": {do: steps{admittedAgo(time.Hour), resumes, admittedAgo(time.Minute), resumes},
			want: map[string]float64{first: 1, again: 1, untilStarted: 2}},
		"a start after an eviction by another leader": {do: steps{says(kit.Isnt(kueue.WorkloadEvicted, "QuotaReserved")), resumes},
			want: map[string]float64{again: 1, untilStarted: 1}},
		"pods are ready once for each start": {do: steps{resumes, notReady, ready, ready, notReady, ready, resumes, ready},
			want: map[string]float64{first: 1, again: 1, untilStarted: 1, untilReady: 2}},
		"pods were ready before this process led":     {do: steps{ready, ready}, want: map[string]float64{}},
		"pods get ready that another process started": {do: steps{notReady, ready}, want: map[string]float64{untilReady: 1}},
		"it waits": {do: steps{isSuspended, ready}, want: map[string]float64{}},
		"its user stops it": {do: steps{resumes, isSuspended, isSuspended},
			want: map[string]float64{first: 1, untilStarted: 1, stopsTotal + "SuspendedByUser": 1}},
		"it is preempted": {do: steps{resumes, preempted, stops(jobframework.StopReasonWorkloadEvicted), isSuspended},
			want: map[string]float64{first: 1, untilStarted: 1, stopsTotal + "Preempted": 1}},
		"it was stopped for a preemption, and the manager does not know that it did": {do: steps{resumes, preempted, isSuspended},
			want: map[string]float64{first: 1, untilStarted: 1, stopsTotal + "Preempted": 1}},
		"it is stopped that another process started": {do: steps{stops("NotAdmitted")}, want: map[string]float64{stopsTotal + "NotAdmitted": 1}},
		"another job of its name":                    {do: steps{resumes, isAnother, isSuspended, resumes}, want: map[string]float64{first: 2, untilStarted: 2}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m := newMeasured(t)
			for _, do := range tc.do {
				do(m)
			}
			expect.Same(t, "Unexpected metrics", tc.want, recorded(t, m.registry))
		})
	}
}

// What the manager suspends is no stop by its user.
func TestStopsOfTheManager(t *testing.T) {
	failed := kit.True(trainer.TrainJobFailed, "")
	ended := kit.True(kueue.WorkloadFinished, kueue.WorkloadFinishedReasonFailed)
	cases := map[string]struct {
		job, workload []metav1.Condition
		stop          func(*reconciler, *job) error
		want          map[string]float64
	}{
		"resumed before it was placed": {stop: func(r *reconciler, j *job) error { return ensurePlaced(t.Context(), j).err },
			want: map[string]float64{"kueue_trainer_stops_total NotAdmitted": 1}},
		"resumed after its end": {workload: []metav1.Condition{ended}, stop: func(r *reconciler, j *job) error { return ensureEnded(t.Context(), j).err },
			want: map[string]float64{"kueue_trainer_stops_total NotAdmitted": 1}},
		"resumed after an end that Trainer tells": {job: []metav1.Condition{failed}, workload: []metav1.Condition{ended},
			stop: func(_ *reconciler, j *job) error { return ensureEnded(t.Context(), j).err }, want: map[string]float64{}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			stored, _ := disagreeing(false, false, false, time.Now())
			stored.Status.Conditions = append(stored.Status.Conditions, tc.job...)
			wl := inttest.WorkloadOf(stored, kit.Admitted)
			wl.Status.Conditions = append(wl.Status.Conditions, tc.workload...)
			r, _ := newReconciler(t, stored, wl)
			registry := prometheus.NewRegistry()
			r.deps.metrics = metrics.NewRecorder(registry, metrics.QueueLabels{})
			j := jobOf(t, r, stored)
			expect.NoError(t, tc.stop(r, j))
			expect.That(t, j.IsSuspended(), "It is not suspended")
			measureStopped(t.Context(), j)
			expect.Same(t, "Unexpected metrics", tc.want, recorded(t, registry))
		})
	}
}

func TestResumedAt(t *testing.T) {
	admitted, resumed := time.Unix(100, 0), time.Unix(200, 0)
	wl, job := inttest.AdmittedOf("a"), inttest.Job("a")
	apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadAdmitted).LastTransitionTime = metav1.NewTime(admitted)
	got := resumedAt(job, wl)
	expect.That(t, got.Equal(admitted), "Trainer says nothing: resumed at %s, want %s", got, admitted)
	job.Status.Conditions = []metav1.Condition{{Type: trainer.TrainJobSuspended, Status: metav1.ConditionFalse, LastTransitionTime: metav1.NewTime(resumed)}}
	got = resumedAt(job, wl)
	expect.That(t, got.Equal(resumed), "resumed at %s, want %s", got, resumed)
}

func TestMeasureGone(t *testing.T) {
	evicted, waits := kit.Is(kueue.WorkloadEvicted, "Preempted"), kit.Isnt(kueue.WorkloadAdmitted, "Pending")
	released := kit.All(evicted, waits, kit.Isnt(kueue.WorkloadQuotaReserved, "Pending"), func(wl *kueue.Workload) { wl.Status.Admission = nil })
	finished := kit.All(released, kit.Is(kueue.WorkloadFinished, "Succeeded"))
	foreign := func(wl *kueue.Workload) { wl.OwnerReferences[0].Kind = "Job" }
	deleted := func(wl *kueue.Workload) { wl.DeletionTimestamp = new(metav1.Now()) }
	same := func(*kueue.Workload) {}
	cases := map[string]struct {
		before, after func(*kueue.Workload)
		want          float64
	}{
		"it is evicted":                      {same, evicted, 0},
		"nothing changes":                    {evicted, evicted, 0},
		"it gives its quota back":            {evicted, released, 1},
		"it has given its quota back before": {released, released, 0},
		"it was not admitted yet":            {kit.All(evicted, waits), released, 0},
		"it is deleted meanwhile":            {kit.All(evicted, deleted), released, 0},
		"it finishes meanwhile":              {evicted, finished, 0},
		"it is of another kind":              {evicted, kit.All(released, foreign), 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			before, after := inttest.AdmittedOf("a", tc.before), inttest.AdmittedOf("a", tc.after)
			registry := prometheus.NewRegistry()
			expect.That(t, measureWorkloads(metrics.NewRecorder(registry, metrics.QueueLabels{})).Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}),
				"the event is kept from the controller")
			expect.Same(t, "Unexpected number of records", tc.want, recorded(t, registry)["kueue_trainer_evicted_until_stopped_seconds"])
		})
	}
}

func TestMeasureEnded(t *testing.T) {
	at := func(condition, reason string, seconds int64) func(*kueue.Workload) {
		return func(wl *kueue.Workload) {
			kit.Is(condition, reason)(wl)
			apimeta.FindStatusCondition(wl.Status.Conditions, condition).LastTransitionTime = metav1.Unix(seconds, 0)
		}
	}
	runs := at(kueue.WorkloadAdmitted, "Admitted", 1000)
	ends := func(reason string) func(*kueue.Workload) {
		return kit.All(runs, at(kueue.WorkloadFinished, reason, 4600))
	}
	succeeded, waits := ends(kueue.WorkloadFinishedReasonSucceeded), kit.Isnt(kueue.WorkloadAdmitted, "Pending")
	foreign := func(wl *kueue.Workload) { wl.OwnerReferences[0].Kind = "Job" }
	cases := map[string]struct {
		// nil before: it is seen for the first time.
		before, after func(*kueue.Workload)
		// want is how many have ended and how long all of them ran; nil: there is no series.
		want []float64
	}{
		"it succeeds":                          {runs, succeeded, []float64{1, 3600}},
		"it fails":                             {runs, ends(kueue.WorkloadFinishedReasonFailed), []float64{1, 3600}},
		"it ends in the second of its start":   {waits, kit.All(succeeded, at(kueue.WorkloadAdmitted, "Admitted", 4600)), []float64{1, 1}},
		"another process told of its end":      {succeeded, succeeded, nil},
		"it has ended before the process came": {nil, succeeded, nil},
		"it ran before the process came":       {nil, runs, []float64{0, 0}},
		"it is admitted":                       {waits, runs, []float64{0, 0}},
		"it is preempted":                      {runs, kit.All(runs, kit.Is(kueue.WorkloadEvicted, "Preempted")), []float64{0, 0}},
		"what was preempted gives quota back":  {kit.All(runs, kit.Is(kueue.WorkloadEvicted, "Preempted")), waits, nil},
		"it ends while it waits":               {waits, kit.All(succeeded, waits), nil},
		"its job is deleted, and it stays":     {runs, ends("Deleted"), nil},
		"its copy in a worker is out of date":  {runs, ends(kueue.WorkloadFinishedReasonOutOfSync), nil},
		"it waits":                             {nil, waits, nil},
		"it is of another kind":                {kit.All(runs, foreign), kit.All(succeeded, foreign), nil},
		"it runs, and is of another kind":      {nil, kit.All(runs, foreign), nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			registry := prometheus.NewRegistry()
			measure := measureWorkloads(metrics.NewRecorder(registry, metrics.QueueLabels{LocalQueues: true}))
			after := inttest.AdmittedOf("a", tc.after)
			passes := tc.before == nil && measure.Create(event.CreateEvent{Object: after}) ||
				tc.before != nil && measure.Update(event.UpdateEvent{ObjectOld: inttest.AdmittedOf("a", tc.before), ObjectNew: after})
			expect.That(t, passes, "the event is kept from the controller")
			var got []float64
			for _, family := range expect.Must(registry.Gather())(t) {
				if family.GetName() == metrics.AdmittedUntilEnded.Name {
					histogram := family.Metric[0].GetHistogram()
					got = append(got, float64(histogram.GetSampleCount()), histogram.GetSampleSum())
				}
			}
			expect.Same(t, "Unexpected records", tc.want, got)
		})
	}
}
