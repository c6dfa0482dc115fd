// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"maps"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/testenv"
	"github.com/kueue-trainer/kueue-trainer/pkg/ledger"
	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// recorded returns what a registry has by kind or reason, without zeros.
func recorded(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	out := inttest.Recorded(t, registry, metrics.Kind, metrics.Reason)
	maps.DeleteFunc(out, func(_ string, value float64) bool { return value == 0 })
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
	says(nil)(m)
	return m
}

// says has the manager see a Workload that says something else.
func says(change func(*kueue.Workload)) func(*measured) {
	return func(m *measured) {
		m.j.view.Workloads = []*kueue.Workload{kit.With(m.wl, change).DeepCopy()}
	}
}

// admittedAgo is another admission.
func admittedAgo(ago time.Duration) func(*measured) {
	return says(func(wl *kueue.Workload) {
		apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadAdmitted).LastTransitionTime = metav1.NewTime(time.Now().Add(-ago))
	})
}

func resumes(m *measured) { measureStart(m.j) }

// isSuspended has the manager see that somebody did it.
func isSuspended(m *measured) {
	m.j.Suspend()
	measureStopped(m.t.Context(), m.j)
}

func stops(reason jobframework.StopReason) func(*measured) {
	return func(m *measured) { measureStop(m.j, stopReason(m.j, reason)) }
}

func ready(m *measured)    { measureReady(m.j, func() bool { return true }) }
func notReady(m *measured) { measureReady(m.j, func() bool { return false }) }

func isAnother(m *measured) {
	m.j, m.wl = jobOf(m.t, m.r, inttest.Job("b")), inttest.AdmittedOf("b")
	says(nil)(m)
}

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
		"another job of its name":                    {In: steps{resumes, isAnother, isSuspended, resumes}, Want: map[string]float64{first: 2, untilStarted: 2}},
	}, func(t *testing.T, tc expect.Row[steps, map[string]float64]) {
		m := newMeasured(t)
		for _, do := range tc.In {
			do(m)
		}
		expect.Same(t, "Unexpected metrics", tc.Want, recorded(t, m.registry))
	})
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
		expect.Same(t, "Unexpected metrics", tc.want, recorded(t, registry))
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
		expect.That(t, measureWorkloads(metrics.NewRecorder(registry, metrics.QueueLabels{})).Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}),
			"the event is kept from the controller")
		expect.Same(t, "Unexpected number of records", tc.want, recorded(t, registry)["kueue_trainer_evicted_until_stopped_seconds"])
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

var accountedStart = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

// accountScene is a TrainJob that runs since then, with its JobSet, Job and Workload.
func accountScene(t *testing.T) (*reconciler, *trainjob.TrainJob, *kueue.Workload) {
	t.Helper()
	stored, js := disagreeing(false, false, true, accountedStart)
	stored.Labels["example.com/user"] = "ann"
	child := kit.ChildJob(js, "download", kit.Succeeded(1))
	child.Status.StartTime = new(metav1.NewTime(accountedStart))
	wl := inttest.WorkloadOf(stored, kit.Admitted)
	wl.UID = "wl"
	r, _ := newReconciler(t, stored, js, child, wl)
	return r, stored, wl
}

func TestAccountFacts(t *testing.T) {
	type row struct {
		waits bool
		job   func(*trainjob.TrainJob)
		wl    func(*kueue.Workload)
		want  ledger.Facts
	}
	expect.Rows(t, map[string]row{
		"it runs":                    {want: ledger.Facts{Started: accountedStart, User: "ann"}},
		"Kueue waits for pods":       {waits: true, want: ledger.Facts{WaitsForPods: true, User: "ann"}},
		"it has failed":              {job: ended(trainer.TrainJobFailed), want: ledger.Facts{Started: accountedStart, User: "ann", JobEnded: time.Unix(1, 0), Outcome: metrics.OutcomeFailed}},
		"it runs in another cluster": {job: elsewhere, wl: kit.Since(time.Unix(2000, 0)), want: ledger.Facts{Started: time.Unix(2000, 0), User: "ann"}},
		"it is a former job's":       {wl: func(wl *kueue.Workload) { wl.OwnerReferences[0].UID = "former" }, want: ledger.Facts{UserUnknown: true}},
		"it is orphaned":             {wl: func(wl *kueue.Workload) { wl.OwnerReferences = nil }, want: ledger.Facts{UserUnknown: true}},
	}, func(t *testing.T, tc row) {
		r, job, wl := accountScene(t)
		expect.NoError(t, r.deps.client.Update(t.Context(), kit.With(job, tc.job)))
		if tc.waits {
			r.deps.kueue = testenv.Kueue(testenv.WaitsForPods)
		}
		expect.Same(t, "Unexpected facts", tc.want, r.deps.factsOf(t.Context(), r.deps.client, kit.With(wl, tc.wl), "example.com/user"))
	})
}

// Nobody waits for a GPU because the account of who had it is not saved.
func TestQuotaDoesNotWaitForTheLedger(t *testing.T) {
	r, stored, wl := accountScene(t)
	expect.NoError(t, r.deps.client.Update(t.Context(), kit.With(wl, preempted)))
	expect.NoError(t, r.deps.client.DeleteAllOf(t.Context(), &batchv1.Job{}, client.InNamespace("ns")))
	expect.NoError(t, r.deps.client.DeleteAllOf(t.Context(), &jobsetapi.JobSet{}, client.InNamespace("ns")))
	// The ledger has not read what was saved yet, so it saves nothing.
	stored.Spec.Suspend = new(true)
	expect.NoError(t, r.deps.client.Update(t.Context(), stored))
	j := jobOf(t, r, stored)
	expect.Must(j.Stop(t.Context(), r.deps.client, nil, jobframework.StopReasonWorkloadEvicted, ""))(t)
	expect.That(t, !j.IsActive(), "The quota of a job without pods stays with it")
}
