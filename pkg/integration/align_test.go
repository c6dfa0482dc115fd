// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"strings"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func ofClass(name string) func(*trainjob.TrainJob) {
	return func(job *trainjob.TrainJob) { job.Labels[kit.PriorityLabel] = name }
}

func withoutQueue(job *trainjob.TrainJob) { job.Labels = nil }

// A label that jobframework stumbles over must not keep it from letting quota go.
func TestQuotaGoesBackWhateverTheLabelsSay(t *testing.T) {
	complete, failed := ended(trainer.TrainJobComplete), ended(trainer.TrainJobFailed)
	type row struct {
		runs bool
		job  func(*trainjob.TrainJob)
		wl   func(*kueue.Workload)
		// want is what becomes of the Workload.
		want string
	}
	expect.Rows(t, map[string]row{
		"complete, of a class that is not there":              {runs: true, job: kit.All(complete, ofClass("gone")), want: "finished"},
		"failed, of a class that is not there":                {job: kit.All(failed, ofClass("gone")), want: "finished"},
		"failed, without its queue":                           {job: kit.All(failed, withoutQueue), want: "finished"},
		"failed and preempted, without its queue":             {job: kit.All(failed, withoutQueue), wl: preempted, want: "finished"},
		"preempted, without its queue":                        {job: withoutQueue, wl: kit.All(preempted, deleted), want: "gone"},
		"its Workload is deleted, its class is not there":     {job: ofClass("gone"), wl: deleted, want: "gone"},
		"failed, its Workload is deleted, without its queue":  {job: kit.All(failed, withoutQueue), wl: deleted, want: "gone"},
		"suspended, its Workload is deleted, without a queue": {job: withoutQueue, wl: deleted, want: "gone"},
	}, func(t *testing.T, tc row) {
		stored, js := disagreeing(!tc.runs, !tc.runs, !tc.runs, time.Now().Add(-time.Hour))
		kit.With(stored, tc.job)
		js.Status.TerminalState = trainer.TrainJobFailed
		wl := inttest.WorkloadOf(stored, kit.Admitted, kit.Held, tc.wl)
		wl.Spec.QueueName = "q"
		if stored.Labels[kit.PriorityLabel] != "" {
			wl.Spec.PriorityClassRef = kueue.NewWorkloadPriorityClassRef("low")
		}
		r, _ := newReconciler(t, stored, js, wl, kit.Priority("low", 1))
		said := saidOf(r)
		for range 4 {
			// What came of a write is not seen before the next look.
			_, _ = look(t, r, jobKey)
		}
		got := "kept"
		if !inttest.Exists(t, r.deps.client, wl) {
			got = "gone"
		} else if strings.Contains(strings.Join(*said, " "), kueue.WorkloadFinished+" True") {
			got = "finished"
		}
		expect.Same(t, "Unexpected Workload", tc.want, got)
	})
}

// What waits for a queue goes by the one that it names now.
func TestQueueOfWhatHoldsQuota(t *testing.T) {
	type row struct {
		runs bool
		job  func(*trainjob.TrainJob)
		wl   func(*kueue.Workload)
		want string
	}
	expect.Rows(t, map[string]row{
		"it runs":                         {runs: true, want: "q"},
		"it has failed":                   {job: ended(trainer.TrainJobFailed), want: "q"},
		"its Workload is deleted":         {wl: deleted, want: "q"},
		"its Workload is deactivated":     {wl: kit.Deactivated, want: "q"},
		"it is about to start":            {},
		"it waits for admission checks":   {wl: kit.Isnt(kueue.WorkloadAdmitted, "")},
		"it was preempted and has queued": {wl: preempted},
	}, func(t *testing.T, tc row) {
		stored, js := disagreeing(!tc.runs, !tc.runs, !tc.runs, time.Now())
		kit.With(stored, kit.All(withoutQueue, tc.job))
		wl := inttest.WorkloadOf(stored, kit.Admitted, kit.Held, tc.wl)
		wl.Spec.QueueName = "q"
		r, _ := newReconciler(t, stored, js, wl)
		j := jobOf(t, r, stored)
		expect.NoError(t, alignWithWorkload(t.Context(), j).err)
		expect.Same(t, "Unexpected queue", tc.want, j.Labels[kit.QueueLabel])
	})
}

// Kueue refuses to have it back.
func TestAdmissionGateIsNotBroughtBack(t *testing.T) {
	const gate = "kueue.x-k8s.io/admission-gated-by"
	for want, says := range map[string]func(*kueue.Workload){"": giveQuota, "example.com/gate": nil} {
		stored, js := suspendedJob()
		stored.Annotations = map[string]string{gate: "example.com/gate"}
		r, _ := newReconciler(t, stored, js, inttest.WorkloadOf(stored, says))
		j := jobOf(t, r, stored)
		expect.NoError(t, alignWithWorkload(t.Context(), j).err)
		expect.Same(t, "Unexpected annotations", map[string]string{gate: want}, j.Annotations)
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

// jobframework looks for a class that is new to a Workload before it does anything else.
func TestKeepPriority(t *testing.T) {
	type row struct {
		named string
		// starts is set where the job waits, and its Workload is admitted.
		starts bool
		// charged is the class of the job's Workload; nil: it has none.
		charged  *string
		want     string
		wantTold string
	}
	expect.Rows(t, map[string]row{
		"a class that is there":                       {named: "there", charged: new("low"), want: "there"},
		"one that is not":                             {named: "gone", charged: new("low"), want: "low", wantTold: `PriorityClassMissing keeps the priority that it has, if any: workloadpriorityclasses.kueue.x-k8s.io "gone" not found`},
		"one that is not, of a job that starts":       {named: "gone", charged: new("low"), starts: true, want: "gone"},
		"one that was deleted since":                  {named: "gone", charged: new("gone"), want: "gone"},
		"one that is not, of a job without":           {named: "gone", charged: new(""), wantTold: "PriorityClassMissing"},
		"one that is not, of a job without Workload":  {named: "gone", want: "gone"},
		"no class at all, where the Workload has one": {charged: new("low")},
	}, func(t *testing.T, tc row) {
		stored, _ := disagreeing(tc.starts, false, false, time.Now())
		if tc.named != "" {
			stored.Labels[kit.PriorityLabel] = tc.named
		}
		objects := []client.Object{stored, kit.Priority("there", 1)}
		if tc.charged != nil {
			wl := inttest.WorkloadOf(stored, kit.Admitted)
			if *tc.charged != "" {
				wl.Spec.PriorityClassRef = kueue.NewWorkloadPriorityClassRef(*tc.charged)
			}
			objects = append(objects, wl)
		}
		r, recorder := newReconciler(t, objects...)
		j := jobOf(t, r, stored.DeepCopy())
		got := keepPriority(t.Context(), j)
		expect.NoError(t, got.err)
		// No event tells of a class that comes.
		expect.Same(t, "It looks again", tc.wantTold != "", got.again > 0)
		expect.Same(t, "jobframework sees another class", tc.want, j.Labels[kit.PriorityLabel])
		expect.Same(t, "The TrainJob is written", tc.named, storedJob(t, r).Labels[kit.PriorityLabel])
		wantTold(t, eventsSoFar(recorder, "Warning"), tc.wantTold)
	})
}

// Kueue orders its queue by the Workload, not by the pods.
func TestTakePodSets(t *testing.T) {
	low, high, kueues := kueue.NewPodPriorityClassRef("low"), kueue.NewPodPriorityClassRef("high"), kueue.NewWorkloadPriorityClassRef("there")
	type row struct {
		// former is the class of the pods that the Workload has, and now that of those that it gets.
		former, now  string
		ref          *kueue.PriorityClassRef
		priority     int32
		labeled      bool
		wantRef      *kueue.PriorityClassRef
		wantPriority int32
		wantErr      bool
	}
	expect.Rows(t, map[string]row{
		"another class":                      {former: "low", now: "high", ref: low, priority: 1, wantRef: high, wantPriority: 9},
		"a first class":                      {now: "high", wantRef: high, wantPriority: 9},
		"no class any more":                  {former: "high", ref: high, priority: 9},
		"a class that is not there":          {former: "low", now: "gone", ref: low, priority: 1, wantErr: true},
		"a former class that is not there":   {former: "gone", now: "high", ref: low, priority: 1, wantRef: low, wantPriority: 1},
		"the same class, of another value":   {former: "high", now: "high", ref: high, priority: 5, wantRef: high, wantPriority: 5},
		"what an admin has set":              {former: "low", now: "high", ref: low, priority: 7, wantRef: low, wantPriority: 7},
		"a WorkloadPriorityClass of its own": {former: "low", now: "high", ref: kueues, priority: 3, wantRef: kueues, wantPriority: 3},
		"a label that is not followed yet":   {former: "low", now: "high", ref: low, priority: 1, labeled: true, wantRef: low, wantPriority: 1},
	}, func(t *testing.T, tc row) {
		of := func(class string) []kueue.PodSet {
			ps := kueue.PodSet{Name: "node", Count: 1}
			ps.Template.Spec.PriorityClassName = class
			return []kueue.PodSet{ps}
		}
		stored, _ := disagreeing(true, false, false, time.Now())
		if tc.labeled {
			stored.Labels[kit.PriorityLabel] = "there"
		}
		r, _ := newReconciler(t, stored, kit.Priority("there", 3),
			&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "low"}, Value: 1},
			&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 9})
		wl := inttest.WorkloadOf(stored)
		wl.Spec.PodSets, wl.Spec.PriorityClassRef, wl.Spec.Priority = of(tc.former), tc.ref, &tc.priority
		err := setPodSets(t.Context(), jobOf(t, r, stored), wl, of(tc.now))
		expect.That(t, (err != nil) == tc.wantErr, "setPodSets() = %v", err)
		if !tc.wantErr {
			expect.Same(t, "Unexpected class", tc.wantRef, wl.Spec.PriorityClassRef)
			expect.Same(t, "Unexpected priority", tc.wantPriority, ptr.Deref(wl.Spec.Priority, 0))
		}
		expect.Same(t, "Unexpected PodSets", of(tc.now), wl.Spec.PodSets)
	})
}
