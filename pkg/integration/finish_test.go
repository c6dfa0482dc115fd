// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	configapi "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/config/kueueconfig"
	"github.com/kueue-trainer/kueue-trainer/pkg/deactivation"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/testenv"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobclient"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/podtracking"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/queues"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/watches"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

var hasFailed = kit.Is(kueue.WorkloadFinished, kueue.WorkloadFinishedReasonFailed)

func TestEndOfAJob(t *testing.T) {
	pod := []client.Object{inttest.PodOf("ns", "job")}
	type row struct {
		condition string
		// there is what is left when JobSet and Jobs are gone.
		there []client.Object
		// wl is what became of the Workload before.
		wl func(*kueue.Workload)
		// until ends the time in which the quota is kept.
		until                   func(*testing.T, *reconciler)
		wantFinished, wantGated bool
	}
	expect.Rows(t, map[string]row{
		"complete":                           {condition: trainer.TrainJobComplete, wantFinished: true},
		"complete, with a pod left":          {condition: trainer.TrainJobComplete, there: pod},
		"failed":                             {condition: trainer.TrainJobFailed, until: trainerSuspends, wantFinished: true, wantGated: true},
		"failed, and Trainer is silent":      {condition: trainer.TrainJobFailed, until: graceIsOver, wantFinished: true, wantGated: true},
		"failed, with another JobSet":        {condition: trainer.TrainJobFailed, until: jobSetIsMade, wantFinished: true, wantGated: true},
		"failed, with a pod left":            {condition: trainer.TrainJobFailed, there: pod},
		"failed long ago, and resumed since": {condition: trainer.TrainJobFailed, wl: hasFailed, wantFinished: true},
	}, func(t *testing.T, tc row) {
		stored, _ := disagreeing(false, false, false, time.Now())
		kit.With(stored, ended(tc.condition)).Status.Conditions[1].LastTransitionTime = metav1.Now()
		wl := inttest.WorkloadOf(stored, kit.Admitted, tc.wl)
		r, _ := newReconciler(t, append(tc.there, stored, wl)...)
		// The fake API server of these tests has no subresources.
		r.deps.client = interceptor.NewClient(r.deps.client.(client.WithWatch), interceptor.Funcs{SubResourcePatch: func(
			ctx context.Context, c client.Client, _ string, obj client.Object, p client.Patch, _ ...client.SubResourcePatchOption,
		) error {
			return c.Patch(ctx, obj, p, client.FieldOwner("test"), client.ForceOwnership)
		}})
		finished := func() bool {
			expect.Must(r.Reconcile(t.Context(), jobRequest))(t)
			inttest.Reload(t, r.deps.client, wl)
			return apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadFinished)
		}
		// A write is not seen again before the next reconcile. Trainer may make another JobSet of a
		// failed job until it has seen that it is suspended.
		if tc.until != nil {
			for range 3 {
				expect.That(t, !finished(), "The quota is given back before Trainer has seen that the job is suspended")
			}
			tc.until(t, r)
		}
		finished()
		expect.Same(t, "The Workload is finished", tc.wantFinished, finished())
		after := storedJob(t, r)
		failed := tc.condition == trainer.TrainJobFailed
		expect.That(t, after.Suspended() == failed, "The job is suspended: %t, want %t", after.Suspended(), failed)
		expect.That(t, !tc.wantGated || r.deps.Field.HoldsGate(&after.Spec), "The job is not at the gate")
	})
}

// Trainer forgets a failure with the JobSet, and Kueue may delete a finished Workload: what says so then is on the TrainJob.
func TestFailedJobStaysEnded(t *testing.T) {
	stored, _ := disagreeing(true, true, true, time.Now())
	wl := inttest.WorkloadOf(stored, kit.Admitted, hasFailed)
	r, _ := newReconciler(t, stored, wl)
	reconcileOnce(t, r)
	expect.NoError(t, client.IgnoreNotFound(r.deps.client.Delete(t.Context(), wl)))
	// Another process knows nothing of it.
	r, recorder := newReconciler(t, storedJob(t, r))
	r.deps.waitForJobSet = 0
	reconcileOnce(t, r)
	var workloads kueue.WorkloadList
	expect.NoError(t, r.deps.client.List(t.Context(), &workloads))
	expect.Same(t, "Workloads of a job that has ended", 0, len(workloads.Items))
	wantTold(t, eventsSoFar(recorder, ""), "HasEnded")

	r, _ = newReconciler(t, kit.With(storedJob(t, r), func(job *trainjob.TrainJob) { job.UID = "another" }))
	r.deps.waitForJobSet = 0
	expect.Must(look(t, r, jobKey))(t)
	theWorkload(t, r.deps.client)
}

// This process knows of the end when Trainer forgets it, and writes it down for the next one.
func TestForgottenFailureIsWrittenDown(t *testing.T) {
	stored, _ := suspendedJob()
	r, _ := newReconciler(t, kit.With(stored, ended(trainer.TrainJobFailed)), inttest.WorkloadOf(stored, kit.Admitted, hasFailed))
	reconcileOnce(t, r)
	expect.That(t, !jobclient.HasEnded(storedJob(t, r)), "It is written while Trainer says so")
	changeJob(t, r, func(job *trainjob.TrainJob) {
		apimeta.RemoveStatusCondition(&job.Status.Conditions, trainer.TrainJobFailed)
	})
	reconcileOnce(t, r)
	expect.That(t, jobclient.HasEnded(storedJob(t, r)), "It is not written")
}

// Kueue deletes finished Workloads, and JobSets have a TTL: both may go while nobody leads.
func TestFailureIsWrittenDownWhereItsWorkloadGoes(t *testing.T) {
	keeps := func(workloads *configapi.WorkloadRetentionPolicy) func(*kueueconfig.Settings) {
		return func(s *kueueconfig.Settings) {
			s.ObjectRetentionPolicies = &configapi.ObjectRetentionPolicies{Workloads: workloads}
		}
	}
	goes := keeps(&configapi.WorkloadRetentionPolicy{AfterFinished: &metav1.Duration{Duration: time.Hour}})
	type row struct {
		end    string
		kueue  func(*kueueconfig.Settings)
		change func(*trainjob.TrainJob)
		// gone is set where its Workload is.
		gone, want bool
	}
	expect.Rows(t, map[string]row{
		"it fails":                             {end: trainer.TrainJobFailed, kueue: goes, want: true},
		"it is complete":                       {end: trainer.TrainJobComplete, kueue: goes},
		"its Workload stays":                   {end: trainer.TrainJobFailed, kueue: keeps(nil)},
		"it runs in another cluster":           {end: trainer.TrainJobFailed, kueue: goes, change: elsewhere},
		"Kueue deletes deactivated ones alone": {end: trainer.TrainJobFailed, kueue: keeps(&configapi.WorkloadRetentionPolicy{})},
		"its Workload is gone already":         {end: trainer.TrainJobFailed, kueue: keeps(nil), gone: true, want: true},
		"it is complete, without a Workload":   {end: trainer.TrainJobComplete, kueue: keeps(nil), gone: true},
	}, func(t *testing.T, tc row) {
		stored, _ := suspendedJob()
		r, _ := newReconciler(t, kit.With(stored, ended(tc.end), tc.change))
		if !tc.gone {
			create(t, r, inttest.WorkloadOf(stored, kit.Admitted, hasFailed))
		}
		r.deps.kueue = testenv.Kueue(tc.kueue)
		reconcileOnce(t, r)
		expect.Same(t, "It is written", tc.want, jobclient.HasEnded(storedJob(t, r)))
	})
}

// Trainer 2.1 makes JobSets of complete jobs again, too.
func TestComesBack(t *testing.T) {
	type row struct {
		served trainjob.TrainerVersion
		end    string
		want   bool
	}
	expect.Rows(t, map[string]row{
		"failed":                    {trainjob.Trainer23, trainer.TrainJobFailed, true},
		"complete":                  {trainjob.Trainer22, trainer.TrainJobComplete, false},
		"complete, on Trainer 2.1":  {trainjob.Trainer21, trainer.TrainJobComplete, true},
		"suspended, on Trainer 2.1": {trainjob.Trainer21, trainer.TrainJobSuspended, false},
	}, func(t *testing.T, tc row) {
		stored, _ := suspendedJob()
		apimeta.SetStatusCondition(&stored.Status.Conditions, kit.True(tc.end, ""))
		r, _ := newReconciler(t, stored)
		r.deps.Describer = r.deps.Describer.For(tc.served)
		end := comesBack(&job{deps: r.deps, observed: observed{TrainJob: *stored}})
		expect.That(t, (end != nil) == tc.want && (end == nil || end.Type == tc.end), "It comes back after %v, want that: %t", end, tc.want)
	})
}

// trainerSuspends is Trainer's word that it has seen the stop.
func trainerSuspends(t *testing.T, r *reconciler) {
	changeJob(t, r, func(job *trainjob.TrainJob) {
		apimeta.SetStatusCondition(&job.Status.Conditions, kit.True(trainer.TrainJobSuspended, ""))
	})
}

func graceIsOver(_ *testing.T, r *reconciler) {
	for _, of := range known(r.deps.records) {
		of.ended.held = of.ended.held.Add(-podtracking.ResumeGrace)
	}
}

// jobSetIsMade has Trainer make another JobSet by what it saw before, and see the stop then.
func jobSetIsMade(t *testing.T, r *reconciler) {
	_, js := disagreeing(false, false, false, time.Now())
	create(t, r, js)
	trainerSuspends(t, r)
}

func TestWhatIsRememberedGoesWithTheJob(t *testing.T) {
	stored, _ := suspendedJob()
	r, recorder := newReconciler(t, stored)
	deps := r.deps
	described := func() *kueue.PodSet { return &expect.Must(deps.PodSets(t.Context(), stored))(t)[0] }
	told := func() int {
		deps.Recorder.Eventf(stored, nil, "Normal", "Reason", "Action", "told")
		deps.Recorder.WarnOfState(stored, jobevents.Notice{Reason: "NotAdmissible", Message: "told"})
		return len(eventsSoFar(recorder, "told"))
	}
	before := described()
	expect.Same(t, "Unexpected number of events", 2, told())
	expect.That(t, told() == 0 && described() == before, "It is told of, or described, again")
	expect.That(t, watches.ForgetDeleted(deps.forget).Delete(event.DeleteEvent{Object: stored}), "The event must pass")
	expect.That(t, told() == 2 && described() != before, "Something is remembered of a TrainJob that is gone")
}

// A Workload that is not replaced while it gives its quota back stays deactivated.
func TestDeactivatedWorkloadStays(t *testing.T) {
	expect.Rows(t, map[string]expect.Row[func(*kueue.Workload), bool]{
		"before Kueue evicts it, the reconcile is over": {In: kit.Deactivated, Want: true},
		"evicted, it is what describes the job":         {In: kit.All(kit.Deactivated, kit.Is(kueue.WorkloadEvicted, ""))},
		"to be deactivated and evicted, so does it":     {In: kit.All(deactivation.Mark, kit.Is(kueue.WorkloadEvicted, ""))},
	}, func(t *testing.T, tc expect.Row[func(*kueue.Workload), bool]) {
		wl := inttest.AdmittedOf("a", tc.In)
		wl.Spec.QueueName, wl.Spec.PodSets = "former", []kueue.PodSet{{Name: "as-it-ran", Count: 4}}
		r, _ := newReconciler(t, wl)
		j := jobOf(t, r, inttest.Job("a"))
		j.Suspend()
		got := follow(t.Context(), j)
		expect.That(t, got.err == nil && got.ends() == tc.Want, "follow() = %+v, want it to end here: %t", got, tc.Want)
		if !got.ends() {
			expect.Same(t, "Unexpected PodSets", wl.Spec.PodSets, expect.Must(j.PodSets(t.Context(), nil))(t))
		}
	})
}

// A job that holds quota, or has ended, is what it was admitted for, whatever its runtime says by now: jobframework would
// stop it, or not let a deleted Workload go.
func TestWorkloadDescribesTheJob(t *testing.T) {
	type row struct {
		wl        func(*kueue.Workload)
		runs, may bool
		// gone is set where its runtime is.
		gone bool
		own  bool
	}
	expect.Rows(t, map[string]row{
		"its Workload is deleted":                        {wl: kit.All(kit.Admitted, kit.Held, deleted)},
		"it runs, and no pod of it is there yet":         {wl: kit.Admitted, runs: true},
		"it was stopped, and pods are left":              {wl: kit.Admitted, may: true},
		"it was stopped, and no pod is left":             {wl: kit.Admitted, own: true},
		"it has ended":                                   {wl: hasFailed},
		"its Workload waits":                             {own: true},
		"its Workload is deleted, and so is its runtime": {wl: kit.All(kit.Held, deleted), gone: true},
	}, func(t *testing.T, tc row) {
		wl := inttest.WorkloadOf(inttest.Job("a"), tc.wl)
		wl.Spec.PodSets = []kueue.PodSet{{Name: "as-it-ran", Count: 4}}
		r, _ := newReconciler(t, wl)
		j := jobOf(t, r, inttest.Job("a"))
		j.Spec.Suspend, j.podsThere, j.described = new(!tc.runs), &podsAnswer{may: tc.may}, []kueue.PodSet{{Name: "as-it-would-run", Count: 2}}
		if tc.gone {
			j.described, j.Spec.RuntimeRef.Name = nil, "gone"
		}
		got := expect.Must(j.PodSets(t.Context(), nil))(t)
		expect.Same(t, "It is described by its runtime", tc.own, got[0].Name == "as-it-would-run")
	})
}

func TestMovedOn(t *testing.T) {
	withClass := &kueue.PriorityClassRef{Group: "kueue.x-k8s.io", Kind: kueue.WorkloadPriorityClassKind, Name: "low"}
	ofPods := &kueue.PriorityClassRef{Group: "scheduling.k8s.io", Kind: kueue.PodPriorityClassKind, Name: "pods"}
	type row struct {
		labels map[string]string
		wl     kueue.WorkloadSpec
		copied bool
		want   string
	}
	expect.Rows(t, map[string]row{
		"the queue and nothing else":         {wl: kueue.WorkloadSpec{QueueName: "q"}},
		"another queue":                      {wl: kueue.WorkloadSpec{QueueName: "former"}, want: "queue"},
		"a class where there was none":       {labels: map[string]string{"kueue.x-k8s.io/priority-class": "high"}, wl: kueue.WorkloadSpec{QueueName: "q"}, want: "priority class"},
		"a class in place of the pods'":      {labels: map[string]string{"kueue.x-k8s.io/priority-class": "high"}, wl: kueue.WorkloadSpec{QueueName: "q", PriorityClassRef: ofPods}, want: "priority class"},
		"another class, which Kueue follows": {labels: map[string]string{"kueue.x-k8s.io/priority-class": "high"}, wl: kueue.WorkloadSpec{QueueName: "q", PriorityClassRef: withClass}},
		"another class, and variants":        {labels: map[string]string{"kueue.x-k8s.io/priority-class": "high"}, wl: kueue.WorkloadSpec{QueueName: "q", PriorityClassRef: withClass}, copied: true, want: "priority class"},
		"the same class, and variants":       {labels: map[string]string{"kueue.x-k8s.io/priority-class": "low"}, wl: kueue.WorkloadSpec{QueueName: "q", PriorityClassRef: withClass}, copied: true},
		"the pods' class alone":              {wl: kueue.WorkloadSpec{QueueName: "q", PriorityClassRef: ofPods}},
		"a time limit":                       {labels: map[string]string{"kueue.x-k8s.io/max-exec-time-seconds": "9"}, wl: kueue.WorkloadSpec{QueueName: "q"}, want: "time limit"},
		"the same time limit":                {labels: map[string]string{"kueue.x-k8s.io/max-exec-time-seconds": "9"}, wl: kueue.WorkloadSpec{QueueName: "q", MaximumExecutionTimeSeconds: new(int32(9))}},
		"no time limit any more":             {wl: kueue.WorkloadSpec{QueueName: "q", MaximumExecutionTimeSeconds: new(int32(9))}, want: "time limit"},
	}, func(t *testing.T, tc row) {
		j := &job{}
		j.Labels = map[string]string{"kueue.x-k8s.io/queue-name": "q"}
		maps.Copy(j.Labels, tc.labels)
		wl := &kueue.Workload{Spec: tc.wl}
		if tc.copied {
			wl.Labels = hasVariants
		}
		got := movedOn(j, wl)
		expect.That(t, strings.Contains(got, tc.want) && (got == "") == (tc.want == ""), "movedOn = %q, want %q", got, tc.want)
	})
}

// hasVariants is on a Workload that concurrent admission has copied.
var hasVariants = map[string]string{"kueue.x-k8s.io/concurrent-admission-parent": "true"}

// Kueue charges the variants, and brings them no change.
func TestChangedJobThatWaitsHasNoVariantsOfBefore(t *testing.T) {
	type row = expect.Row[func(*kueue.WorkloadSpec), bool]
	inactive := func(s *kueue.WorkloadSpec) { s.Active = new(false) }
	moved := func(s *kueue.WorkloadSpec) { s.QueueName = "former" }
	elsewhere := func(s *kueue.WorkloadSpec) { s.PodSets[0].Template.Spec.NodeSelector = map[string]string{"zone": "a"} }
	expect.Rows(t, map[string]row{
		"nothing changed": {In: func(*kueue.WorkloadSpec) {}, Want: true},
		"another queue":   {In: moved},
		"another queue of one that is deactivated": {In: kit.All(inactive, moved), Want: true},
		"other nodes of one that is deactivated":   {In: kit.All(inactive, elsewhere), Want: true},
		"fewer pods were due":                      {In: func(s *kueue.WorkloadSpec) { s.PodSets[0].Count = 7 }},
		"other nodes were due":                     {In: elsewhere},
	}, func(t *testing.T, tc row) {
		stored, js := suspendedJob()
		r, _ := newReconciler(t, stored, js)
		wl := createDescribed(t, r, stored, func(wl *kueue.Workload) { wl.Labels = hasVariants; tc.In(&wl.Spec) })
		expect.NoError(t, follow(t.Context(), jobOf(t, r, stored)).err)
		expect.Same(t, "The Workload is kept", tc.Want, inttest.Exists(t, r.deps.client, wl))
	})
}

// jobframework looks at neither where a Workload was evicted, or has the priority of its pods.
func TestWorkloadThatWaitsFollowsLabels(t *testing.T) {
	preempted := kit.Says(kit.True(kueue.WorkloadEvicted, kueue.WorkloadEvictedByPreemption))
	moved := func(wl *kueue.Workload) { wl.Spec.QueueName = "former" }
	ofPods := func(wl *kueue.Workload) {
		wl.Spec.PriorityClassRef, wl.Spec.Priority = kueue.NewPodPriorityClassRef("pods"), new(int32(1))
	}
	type row struct {
		change func(*kueue.Workload)
		label  string
		want   int32
	}
	expect.Rows(t, map[string]row{
		"its queue, of one that was preempted":    {change: kit.All(preempted, moved)},
		"a first class, in place of that of pods": {change: ofPods, label: "there", want: 3},
		"both": {change: kit.All(preempted, moved, ofPods), label: "there", want: 3},
	}, func(t *testing.T, tc row) {
		stored, js := suspendedJob()
		if tc.label != "" {
			stored.Labels[kit.PriorityLabel] = tc.label
		}
		r, _ := newReconciler(t, stored, js, kit.Priority("there", 3))
		wl := createDescribed(t, r, stored, kit.Held, tc.change)
		reconcileOnce(t, r)
		expect.NoError(t, r.deps.client.Get(t.Context(), client.ObjectKeyFromObject(wl), wl))
		expect.Same(t, "Unexpected queue", kueue.LocalQueueName("q"), wl.Spec.QueueName)
		expect.Same(t, "Unexpected priority", tc.want, ptr.Deref(wl.Spec.Priority, 0))
		expect.Same(t, "Has a class of Kueue", tc.want > 0, kueuelib.HasWorkloadPriorityClass(wl))
	})
}

// jobframework takes Kueue's finalizer off a Workload that is finished, and has to be asked for that.
func TestEndedJobWhoseWorkloadIsHeldIsLookedAt(t *testing.T) {
	for _, held := range []bool{true, false} {
		stored, js := suspendedJob()
		wl := inttest.WorkloadOf(stored, hasFailed)
		if held {
			kit.Held(wl)
		}
		r, _ := newReconciler(t, stored, js, wl)
		got := follow(t.Context(), jobOf(t, r, stored))
		expect.That(t, got.err == nil && got.ends() != held, "follow() = %+v where its Workload is held: %t", got, held)
	}
}

// A job that is not the manager's is not written, however it ended.
func TestFailedJobOfOthersIsLeftAsItIs(t *testing.T) {
	expect.Rows(t, map[string]func(*trainjob.TrainJob){"in no queue": withoutQueue, "in another cluster": elsewhere}, func(t *testing.T, whose func(*trainjob.TrainJob)) {
		stored, _ := disagreeing(false, false, false, time.Now())
		r, _ := newReconciler(t, kit.With(stored, ended(trainer.TrainJobFailed), whose))
		_, after := reconcileOnce(t, r)
		expect.That(t, !after.Suspended() && !jobclient.HasEnded(after), "It is written")
	})
}

// What could never run gives its place up, and nobody tries it again before somebody acts.
func TestUnfit(t *testing.T) {
	for err, want := range map[error]bool{
		podset.ErrCannotRun: true, patch.ErrInvalidPatches: true, queues.ErrNoOtherCluster: true, queues.ErrOnlyHere: false, trainjob.ErrRuntimeNotFound: false,
	} {
		expect.Same(t, "It could never run: "+err.Error(), want, unfit(fmt.Errorf("describing: %w", err)))
	}
}
