// SPDX-License-Identifier: Apache-2.0

package jobmetrics

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
	"github.com/kueue-trainer/kueue-trainer/pkg/ledger"
	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

var preempted = kit.Is(kueue.WorkloadEvicted, kueue.WorkloadEvictedByPreemption)

// measured is TrainJob "llm", as a manager sees it.
type measured struct {
	*Run
	recorder *metrics.Recorder
	job      *trainjob.TrainJob
	wl       *kueue.Workload
}

// says has the manager see a Workload that says something else.
func says(change func(*kueue.Workload)) func(*measured) {
	return func(m *measured) {
		m.wl = inttest.AdmittedOf(m.job.UID, change)
	}
}

// admittedAgo is another admission.
func admittedAgo(ago time.Duration) func(*measured) { return says(kit.Since(time.Now().Add(-ago))) }

func resumes(m *measured) {
	m.job.Spec.Suspend = new(false)
	m.Starts(m.recorder, m.wl)
}

// isSuspended has the manager see that somebody did it.
func isSuspended(m *measured) {
	m.job.Spec.Suspend = new(true)
	m.FoundSuspended(m.recorder, m.job, m.wl)
}

func stops(reason jobframework.StopReason) func(*measured) {
	return func(m *measured) { m.Stops(m.recorder, m.job, m.wl, StopReason(m.wl, reason)) }
}

func ready(m *measured) { m.Runs(m.recorder, m.job, m.wl, func() bool { return true }) }

func notReady(m *measured) { m.Runs(m.recorder, m.job, m.wl, func() bool { return false }) }

func TestMeasured(t *testing.T) {
	const (
		first, again = "kueue_trainer_starts_total first", "kueue_trainer_starts_total again"
		untilStarted = "kueue_trainer_admitted_until_started_seconds"
		untilReady   = "kueue_trainer_started_until_ready_seconds"
		stopsTotal   = "kueue_trainer_stops_total "
	)
	type steps []func(*measured)
	expect.Rows(t, map[string]expect.Row[steps, map[string]float64]{
		"a start": {In: steps{resumes}, Want: map[string]float64{first: 1, untilStarted: 1}},
		"its user stops it, and starts it again on the same admission": {In: steps{admittedAgo(time.Hour), resumes, isSuspended, resumes},
			Want: map[string]float64{first: 1, again: 1, untilStarted: 1, stopsTotal + "SuspendedByUser": 1}},
		"a start on another admission":                {In: steps{admittedAgo(time.Hour), resumes, admittedAgo(time.Minute), resumes}, Want: map[string]float64{first: 1, again: 1, untilStarted: 2}},
		"a start after an eviction by another leader": {In: steps{says(kit.Isnt(kueue.WorkloadEvicted, "QuotaReserved")), resumes}, Want: map[string]float64{again: 1, untilStarted: 1}},
		"pods are ready once for each start": {In: steps{resumes, notReady, ready, ready, notReady, ready, resumes, ready},
			Want: map[string]float64{first: 1, again: 1, untilStarted: 1, untilReady: 2}},
		"pods were ready before this process led":     {In: steps{ready, ready}, Want: map[string]float64{}},
		"pods get ready that another process started": {In: steps{notReady, ready}, Want: map[string]float64{untilReady: 1}},
		"it waits":          {In: steps{isSuspended, ready}, Want: map[string]float64{}},
		"its user stops it": {In: steps{resumes, isSuspended, isSuspended}, Want: map[string]float64{first: 1, untilStarted: 1, stopsTotal + "SuspendedByUser": 1}},
		"it is preempted": {In: steps{resumes, says(preempted), stops(jobframework.StopReasonWorkloadEvicted), isSuspended},
			Want: map[string]float64{first: 1, untilStarted: 1, stopsTotal + "Preempted": 1}},
		"it was stopped for a preemption, and the manager does not know that it did": {In: steps{resumes, says(preempted), isSuspended},
			Want: map[string]float64{first: 1, untilStarted: 1, stopsTotal + "Preempted": 1}},
		"it is stopped that another process started": {In: steps{stops("NotAdmitted")}, Want: map[string]float64{stopsTotal + "NotAdmitted": 1}},
	}, func(t *testing.T, tc expect.Row[steps, map[string]float64]) {
		registry := prometheus.NewRegistry()
		m := &measured{Run: &Run{}, recorder: metrics.NewRecorder(registry, metrics.QueueLabels{LocalQueues: true}), job: inttest.Job("a")}
		for _, do := range append(steps{says(nil)}, tc.In...) {
			do(m)
		}
		expect.Same(t, "Unexpected metrics", tc.Want, inttest.Counted(t, registry))
	})
}

func TestResumedAt(t *testing.T) {
	admitted, resumed := time.Unix(100, 0), time.Unix(200, 0)
	wl, job := inttest.AdmittedOf("a", kit.Since(admitted)), inttest.Job("a")
	got := resumedAt(job, wl)
	expect.That(t, got.Equal(admitted), "Trainer says nothing: resumed at %s, want %s", got, admitted)
	job.Status.Conditions = []metav1.Condition{{Type: trainer.TrainJobSuspended, Status: metav1.ConditionFalse, LastTransitionTime: metav1.NewTime(resumed)}}
	got = resumedAt(job, wl)
	expect.That(t, got.Equal(resumed), "resumed at %s, want %s", got, resumed)
}

// foreign is a Workload of another kind.
func foreign(wl *kueue.Workload) { wl.OwnerReferences[0].Kind = "Job" }

func TestMeasureGone(t *testing.T) {
	evicted, waits := preempted, kit.Isnt(kueue.WorkloadAdmitted, "Pending")
	released := kit.All(evicted, waits, kit.Isnt(kueue.WorkloadQuotaReserved, "Pending"), func(wl *kueue.Workload) { wl.Status.Admission = nil })
	deleted := func(wl *kueue.Workload) { wl.DeletionTimestamp = new(metav1.Now()) }
	finished := kit.All(released, kit.Is(kueue.WorkloadFinished, "Succeeded"))
	type row struct {
		before, after func(*kueue.Workload)
		want          float64
	}
	expect.Rows(t, map[string]row{
		"it is evicted":                      {nil, evicted, 0},
		"nothing changes":                    {evicted, evicted, 0},
		"it gives its quota back":            {evicted, released, 1},
		"it has given its quota back before": {released, released, 0},
		"it was not admitted yet":            {kit.All(evicted, waits), released, 0},
		"it is deleted meanwhile":            {kit.All(evicted, deleted), released, 0},
		"it finishes meanwhile":              {evicted, finished, 0},
		"it is of another kind":              {evicted, kit.All(released, foreign), 0},
	}, func(t *testing.T, tc row) {
		before, after := inttest.AdmittedOf("a", tc.before), inttest.AdmittedOf("a", tc.after)
		registry := prometheus.NewRegistry()
		expect.That(t, OfWorkloads(metrics.NewRecorder(registry, metrics.QueueLabels{})).Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}),
			"the event is kept from the controller")
		expect.Same(t, "Unexpected number of records", tc.want, inttest.Counted(t, registry)["kueue_trainer_evicted_until_stopped_seconds"])
	})
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
	type row struct {
		// nil before: it is seen for the first time.
		before, after func(*kueue.Workload)
		// want is how many have ended and how long all of them ran; nil: there is no series.
		want []float64
	}
	expect.Rows(t, map[string]row{
		"it succeeds":                          {runs, succeeded, []float64{1, 3600}},
		"it fails":                             {runs, ends(kueue.WorkloadFinishedReasonFailed), []float64{1, 3600}},
		"it ends in the second of its start":   {waits, kit.All(succeeded, at(kueue.WorkloadAdmitted, "Admitted", 4600)), []float64{1, 1}},
		"another process told of its end":      {succeeded, succeeded, nil},
		"it has ended before the process came": {nil, succeeded, nil},
		"it ran before the process came":       {nil, runs, []float64{0, 0}},
		"it is admitted":                       {waits, runs, []float64{0, 0}},
		"it is preempted":                      {runs, kit.All(runs, preempted), []float64{0, 0}},
		"what was preempted gives quota back":  {kit.All(runs, preempted), waits, nil},
		"it ends while it waits":               {waits, kit.All(succeeded, waits), nil},
		"its job is deleted, and it stays":     {runs, ends("Deleted"), nil},
		"its copy in a worker is out of date":  {runs, ends(kueue.WorkloadFinishedReasonOutOfSync), nil},
		"it waits":                             {nil, waits, nil},
		"it is of another kind":                {kit.All(runs, foreign), kit.All(succeeded, foreign), nil},
		"it runs, and is of another kind":      {nil, kit.All(runs, foreign), nil},
	}, func(t *testing.T, tc row) {
		registry := prometheus.NewRegistry()
		measure := OfWorkloads(metrics.NewRecorder(registry, metrics.QueueLabels{LocalQueues: true}))
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

func TestFactsOf(t *testing.T) {
	start := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	type row struct {
		waits bool
		job   func(*trainjob.TrainJob)
		wl    func(*kueue.Workload)
		want  ledger.Facts
	}
	failed := func(job *trainjob.TrainJob) {
		job.Status.Conditions = []metav1.Condition{kit.True(trainer.TrainJobFailed, "")}
	}
	elsewhere := func(job *trainjob.TrainJob) { job.Spec.ManagedBy = new(kueue.MultiKueueControllerName) }
	expect.Rows(t, map[string]row{
		"it runs":                    {want: ledger.Facts{Started: start, User: "ann"}},
		"Kueue waits for pods":       {waits: true, want: ledger.Facts{WaitsForPods: true, User: "ann"}},
		"it has failed":              {job: failed, want: ledger.Facts{Started: start, User: "ann", JobEnded: time.Unix(1, 0), Outcome: metrics.OutcomeFailed}},
		"it runs in another cluster": {job: elsewhere, wl: kit.Since(time.Unix(2000, 0)), want: ledger.Facts{Started: time.Unix(2000, 0), User: "ann"}},
		"it is a former job's":       {wl: func(wl *kueue.Workload) { wl.OwnerReferences[0].UID = "former" }, want: ledger.Facts{UserUnknown: true}},
		"it is orphaned":             {wl: func(wl *kueue.Workload) { wl.OwnerReferences = nil }, want: ledger.Facts{UserUnknown: true}},
	}, func(t *testing.T, tc row) {
		job := inttest.Job("a")
		job.Labels = map[string]string{"example.com/user": "ann"}
		js := inttest.JobSetOf(job, false)
		child := kit.ChildJob(js, "download", kit.Succeeded(1))
		child.Status.StartTime = new(metav1.NewTime(start))
		cached := inttest.Fake(kit.With(job, tc.job), js, child).Build()
		expect.Same(t, "Unexpected facts", tc.want, FactsOf(t.Context(), cached, inttest.AdmittedOf("a", tc.wl), "example.com/user", tc.waits))
	})
}
