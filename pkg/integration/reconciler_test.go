// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/deactivation"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/testenv"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobclient"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/placeholder"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// A TrainJob that was made while the webhook was away must not get child Jobs without the gate.
func TestGateComesBeforeTheQueue(t *testing.T) {
	stored, _ := suspendedJob()
	stored.CreationTimestamp = metav1.Now()
	r, _ := newReconciler(t, stored)
	reads := 0
	r.deps.Runtimes.Live = kit.Gets(r.deps.client, func(obj client.Object, _ client.ObjectKey) error {
		if _, ok := obj.(*corev1.ConfigMap); ok {
			reads++
		}
		return nil
	})
	result, gated := reconcileOnce(t, r)
	expect.That(t, r.deps.Field.HoldsGate(&gated.Spec) && result.RequeueAfter != 0,
		"The TrainJob has patches %v and is looked at again in %s, want the gate and to wait", gated.Spec.RuntimePatches, result.RequeueAfter)
	reads = 0
	_, again := reconcileOnce(t, r)
	expect.That(t, again.ResourceVersion == gated.ResourceVersion && reads == 0, "A TrainJob that has the gate is written, or its runtime read %d times", reads)
}

// Whoever may edit Workloads may keep one, and Kueue counts the quota of what is there. MultiKueue takes every end of a copy
// but one for that of the job.
func TestDeletedWorkloadThatStaysHoldsNoQuota(t *testing.T) {
	type row struct {
		finalizers []string
		wl         func(*kueue.Workload)
		// runs is set for a job that is not suspended yet.
		runs bool
		pods []client.Object
		// want is why the Workload is finished.
		want string
	}
	mine := []string{"example.com/mine"}
	expect.Rows(t, map[string]row{
		"let go, and kept by somebody": {finalizers: mine, wl: deleted, want: "Deleted"},
		"of a copy, let go":            {finalizers: mine, wl: kit.All(kit.Copied, deleted), want: kueue.WorkloadFinishedReasonOutOfSync},
		"of a job that is to stop":     {finalizers: mine, wl: deleted, runs: true},
		"of a job with a pod left":     {finalizers: mine, wl: deleted, pods: []client.Object{inttest.PodOf("team", "llm")}},
		"not let go":                   {finalizers: append(mine, kueue.ResourceInUseFinalizerName), wl: deleted},
		"of a copy, not let go":        {finalizers: []string{placeholder.Finalizer}, wl: deleted},
		"not deleted":                  {finalizers: mine},
	}, func(t *testing.T, tc row) {
		wl := inttest.AdmittedOf("uid", tc.wl)
		wl.Finalizers = tc.finalizers
		r, _ := onStatuses(t, append(tc.pods, wl)...)
		trainJob := inttest.Job("uid")
		trainJob.Spec.Suspend = new(!tc.runs)
		expect.NoError(t, finishDeletedWorkloads(t.Context(), jobOf(t, r, trainJob)).err)
		inttest.Reload(t, r.deps.client, wl)
		expect.Same(t, "Why the Workload is finished", tc.want, state.ReasonOf(wl, kueue.WorkloadFinished))
	})
}

// A start is told by one event, with the flavors, and one that repeats another is told, too.
func TestEveryStartIsToldOnce(t *testing.T) {
	stored, js := suspendedJob()
	r, recorder := newReconciler(t, stored, js)
	reconcileOnce(t, r)
	changeWorkload(t, r.deps.client, giveQuota)
	_, started := reconcileOnce(t, r)
	expect.Need(t, !started.Suspended(), "An admitted job was not started")
	// The user suspends it, which holds no job that is admitted.
	changeJob(t, r, func(job *trainjob.TrainJob) { job.Spec.Suspend = new(true) })
	reconcileOnce(t, r)
	const start = "Normal Started Admitted from queue q by ClusterQueue gpus: node 1 pod on no flavor, it requests nothing"
	expect.Same(t, "Unexpected events", []string{start, start}, eventsSoFar(recorder, " Started "))
}

// A job that waits for something is looked at when its time comes, and not before those
// about which Kueue has decided meanwhile.
func TestWhatWaitsIsNotFirst(t *testing.T) {
	stored, _ := suspendedJob()
	r, _ := newReconciler(t, stored)
	result, err := r.Reconcile(t.Context(), jobRequest)
	expect.That(t, err == nil && result.RequeueAfter != 0 && ptr.Deref(result.Priority, 1) == 0,
		"Reconcile() = %+v, %v; want to come again with priority 0", result, err)
}

// A job that runs is what its JobSet and that one's Jobs have, whenever they were made. A prebuilt Workload is its user's:
// it gives its quota back and stays. MultiKueue gets a copy back by deletion.
func TestRunningJobStaysWithinItsQuota(t *testing.T) {
	type row struct {
		replicas, pods int32
		job            func(*trainjob.TrainJob)
		wl             func(*kueue.Workload)
		child          func(*batchv1.Job)
		// old has the cache be behind the API server, which has fewer pods, or another JobSet.
		old        bool
		now        func(*jobsetapi.JobSet)
		kept       bool
		wantMarked bool
	}
	later := func(child *batchv1.Job) { child.CreationTimestamp = metav1.Now() }
	added := func(child *batchv1.Job) {
		child.Spec.Template.Spec.Containers = []corev1.Container{{Name: "sidecar", Resources: kit.GPUResources("1")}}
	}
	expect.Rows(t, map[string]row{
		"the JobSet is what the job was admitted for":        {replicas: 1, pods: 1, kept: true},
		"a Job that is made later asks for as much":          {replicas: 1, pods: 1, child: later, kept: true},
		"one that is made later asks for more":               {replicas: 1, pods: 1, child: kit.All(later, added)},
		"one that is over did":                               {replicas: 1, pods: 1, child: kit.All(later, added, kit.Completed), kept: true},
		"one that was there at the start is looked at then":  {replicas: 1, pods: 1, child: added, kept: true},
		"the JobSet has more Jobs":                           {replicas: 2, pods: 1},
		"a Job that the cache has from before it was scaled": {replicas: 1, pods: 2, old: true, kept: true},
		"a JobSet that goes by now": {replicas: 2, pods: 1, old: true, kept: true, now: func(js *jobsetapi.JobSet) {
			js.DeletionTimestamp, js.Finalizers = new(metav1.Now()), []string{"foregroundDeletion"}
		}},
		"a JobSet that is another job's by now":               {replicas: 2, pods: 1, old: true, kept: true, now: func(js *jobsetapi.JobSet) { js.OwnerReferences[0].UID = "next" }},
		"a Job runs again whose quota was given back":         {replicas: 1, pods: 1, wl: func(wl *kueue.Workload) { wl.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "node", Count: 1}} }},
		"somebody scaled a Job":                               {replicas: 1, pods: 2},
		"the job was deactivated meanwhile, and stops anyway": {replicas: 2, pods: 1, wl: kit.Deactivated, kept: true},
		"the JobSet of a prebuilt Workload has more Jobs":     {replicas: 2, pods: 1, job: prebuilt, kept: true, wantMarked: true},
		"that of a copy of MultiKueue's does":                 {replicas: 2, pods: 1, job: prebuilt, wl: kit.Copied},
	}, func(t *testing.T, tc row) {
		stored, js := disagreeing(false, false, false, time.Now().Add(-time.Hour))
		kit.With(stored, tc.job)
		js.Spec.ReplicatedJobs = kit.ReplicatedJobs("node", tc.replicas)
		child := kit.ChildJob(js, "node", kit.Active(1))
		child.Spec.Parallelism = &tc.pods
		kit.With(child, tc.child)
		wl := inttest.WorkloadOf(stored, kit.Admitted, ofPods(1), tc.wl)
		r, recorder := newReconciler(t, js, child, wl)
		if tc.old {
			now := child.DeepCopy()
			now.Spec.Parallelism = new(int32(1))
			r.deps.live = inttest.Fake(kit.With(js.DeepCopy(), tc.now), now).Build()
		}
		expect.NoError(t, ensureWithinQuota(t.Context(), jobOf(t, r, stored)).err)
		expect.Same(t, "The job keeps its Workload", tc.kept, inttest.Exists(t, r.deps.client, wl))
		r.deps.live = kit.Gets(r.deps.live, func(obj client.Object, _ client.ObjectKey) error {
			_, is := obj.(*batchv1.Job)
			expect.That(t, !is, "A Job is read again")
			return nil
		})
		expect.NoError(t, ensureWithinQuota(t.Context(), jobOf(t, r, stored)).err)
		if tc.wantMarked {
			inttest.Reload(t, r.deps.client, wl)
			wantTold(t, eventsSoFar(recorder, ""), "Warning CannotStart gives its quota back, cannot run on it: prebuilt Workload")
		}
		expect.Same(t, "It is to be deactivated", tc.wantMarked, deactivation.Marked(wl))
	})
}

// docs/architecture.md lists the rules of each phase, in their order. One that is missing, or that comes too late, is a
// difference there.
func TestRulesAreThoseOfTheDocs(t *testing.T) {
	names := func(rules []rule) string {
		var out []string
		for _, of := range rules {
			name := runtime.FuncForPC(reflect.ValueOf(of).Pointer()).Name()
			out = append(out, name[strings.LastIndex(name, ".")+1:])
		}
		return strings.Join(out, ", ")
	}
	var lines []string
	for _, p := range []phase{phaseGone, phaseDeleting, phaseFinished, phaseSuspended, phaseRunning} {
		lines = append(lines, string(p))
		for _, part := range []struct {
			name  string
			rules []rule
		}{{"before", rulesOf(p).before}, {"always", rulesOf(p).always}, {"settled", rulesOf(p).settled}} {
			if len(part.rules) > 0 {
				lines = append(lines, fmt.Sprintf("  %-8s %s", part.name, names(part.rules)))
			}
		}
	}
	page := string(expect.Must(os.ReadFile("../../docs/architecture.md"))(t))
	want := strings.Join(lines, "\n")
	expect.That(t, strings.Contains(page, "```text\n"+want+"\n```"), "docs/architecture.md does not have the rules as they are:\n%s", want)
}

// The first rule that ends a reconcile is the last of those before jobframework's look, and an error ends it too.
func TestUntilEnd(t *testing.T) {
	wrong := errors.New("wrong")
	minute, second := result{again: time.Minute}, result{again: time.Second}
	type row struct {
		rules []result
		want  result
		asked int
	}
	expect.Rows(t, map[string]row{
		"none has anything to say":         {rules: []result{{}, {}}, asked: 2},
		"the earliest time counts":         {rules: []result{minute, second, {}}, want: second, asked: 3},
		"one ends it":                      {rules: []result{minute, lookAgain(time.Second), second}, want: lookAgain(time.Second), asked: 2},
		"one that does not queue":          {rules: []result{unqueued(time.Second), minute}, want: unqueued(time.Second), asked: 1},
		"a view from before our own write": {rules: []result{{done: true, stale: true}, minute}, want: result{done: true, stale: true}, asked: 1},
		"one comes to an error":            {rules: []result{minute, ofError(wrong), done(nil)}, want: result{again: time.Minute, err: wrong}, asked: 2},
	}, func(t *testing.T, tc row) {
		asked := 0
		rules := expect.Each(tc.rules, func(r result) rule { return func(context.Context, *job) result { asked++; return r } })
		got := untilEnd(t.Context(), &job{}, rules)
		expect.That(t, got == tc.want && asked == tc.asked, "it came to %+v by %d rules, want %+v by %d", got, asked, tc.want, tc.asked)
	})
}

// A rule that brings the job into another phase is the last of the settled ones; an error keeps none of the others from
// being followed.
func TestAll(t *testing.T) {
	wrong, asked := errors.New("wrong"), 0
	fails := func(context.Context, *job) result { asked++; return ofError(wrong) }
	suspends := func(_ context.Context, j *job) result { asked++; j.Suspend(); return result{} }
	j := &job{observed: observed{TrainJob: *inttest.Job("uid")}}
	j.Spec.Suspend = new(false)
	got := all(t.Context(), j, []rule{fails, fails, suspends, fails})
	expect.That(t, errors.Is(got.err, wrong) && asked == 3, "it came to %+v by %d rules, want the error by 3", got, asked)
}

// A job is in one phase, whatever else is true of it.
func TestPhase(t *testing.T) {
	complete := ended(trainer.TrainJobComplete)
	for want, change := range map[phase]func(*trainjob.TrainJob){
		phaseGone:      func(j *trainjob.TrainJob) { *j = trainjob.TrainJob{} },
		phaseDeleting:  kit.All(isDeleted, complete),
		phaseFinished:  complete,
		phaseSuspended: func(j *trainjob.TrainJob) { j.Spec.Suspend = new(true) },
		phaseRunning:   func(j *trainjob.TrainJob) { j.Spec.Suspend = new(false) },
	} {
		o := &observed{TrainJob: *kit.With(inttest.Job("uid"), change)}
		expect.Same(t, "Unexpected phase", want, o.phase())
		expect.Same(t, "It is alive when "+string(want), want == phaseSuspended || want == phaseRunning, o.alive())
	}
}

// Of jobs without quota that wait for what people may yet make, thousands shall be nobody else's concern.
func TestWaitsForPeopleGrow(t *testing.T) {
	type row struct {
		job   func(*trainjob.TrainJob)
		quota bool
		want  []time.Duration
	}
	expect.Rows(t, map[string]row{
		"a priority class":             {job: ofClass("urgnet"), want: []time.Duration{retryClass, time.Minute, longestClass}},
		"a prebuilt Workload":          {job: prebuilt, want: []time.Duration{retryPrebuilt, longestPrebuilt, longestPrebuilt}},
		"a class, while quota is held": {job: ofClass("urgnet"), quota: true, want: []time.Duration{retryClass, retryClass, retryClass}},
	}, func(t *testing.T, tc row) {
		stored, js := suspendedJob()
		r, _ := newReconciler(t, stored, js)
		r.deps.client = kit.Gets(r.deps.client, func(obj client.Object, key client.ObjectKey) error {
			if _, ok := obj.(*kueue.WorkloadPriorityClass); ok {
				return apierrors.NewNotFound(schema.GroupResource{Resource: "WorkloadPriorityClass"}, key.Name) // As caches say it.
			}
			return nil
		})
		if tc.quota {
			reconcileOnce(t, r)
			changeWorkload(t, r.deps.client, kit.All(giveQuota, func(wl *kueue.Workload) { wl.Spec.PriorityClassRef = kueue.NewWorkloadPriorityClassRef("low") }))
		}
		changeJob(t, r, tc.job)
		var got []time.Duration
		for _, waited := range []time.Duration{0, time.Minute, time.Hour} {
			if known := r.deps.records.of(jobKey, stored.UID); !known.lacks.IsZero() {
				known.lacks = time.Now().Add(-waited)
			}
			result := expect.Must(r.Reconcile(t.Context(), jobRequest))(t)
			got = append(got, result.RequeueAfter.Truncate(time.Second))
		}
		expect.Same(t, "Unexpected times to the next look", tc.want, got)
	})
}

// What only time cures is tried again in its time, and nobody has to know; 0 is for all else.
func TestRetryIn(t *testing.T) {
	forbidden := func(reason string) error {
		return apierrors.NewForbidden(jobclient.Resource, "llm", errors.New(reason))
	}
	missing := func(group, resource string) error {
		return fmt.Errorf("preparing: %w", apierrors.NewNotFound(schema.GroupResource{Group: group, Resource: resource}, "gone"))
	}
	expect.Answers(t, retryIn, map[string]expect.Row[error, time.Duration]{
		"somebody else was faster": {In: apierrors.NewConflict(jobclient.Resource, "llm", errors.New("changed")), Want: retrySoon},
		"Trainer has not seen the last pod go": {Want: retrySlowly, In: fmt.Errorf("stopping: %w", forbidden(
			"spec.podTemplateOverrides: Forbidden: PodTemplateOverrides cannot be modified when the JobSet's ReplicatedJob node is still active"))},
		"pods are left":                     {In: errStillActive, Want: retrySlowly},
		"the Workload is gone":              {In: missing("kueue.x-k8s.io", "workloads"), Want: retrySoon},
		"the namespace is about to go":      {In: inTerminating(), Want: retryTerminating},
		"there is no WorkloadPriorityClass": {In: missing("", "WorkloadPriorityClass"), Want: retryClass},
		"there is no PriorityClass":         {In: missing("", "PriorityClass"), Want: retryClass},
		"there are no Workloads":            {In: apierrors.NewGenericServerResponse(404, "patch", schema.GroupResource{Group: "kueue.x-k8s.io", Resource: "workloads"}, "wl", "404 page not found", 0, true)},
		"something else is gone":            {In: missing("", "namespaces")},
		"Trainer refuses for good":          {In: forbidden("must not have envs for the node containers")},
		"a text that only looks so":         {In: errors.New("it is still active")},
		"nothing is wrong":                  {},
	})
}

// inTerminating is the API server's answer where something is created in a namespace that is being deleted.
func inTerminating() error {
	err := apierrors.NewForbidden(schema.GroupResource{Group: "kueue.x-k8s.io", Resource: "workloads"}, "wl", errors.New("it is being terminated"))
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	return err
}

func TestQuiet(t *testing.T) {
	for err, wantError := range map[error]bool{errStillActive: false, errors.New("forbidden"): true} {
		var out bytes.Buffer
		log := quiet(funcr.NewJSON(func(line string) { out.WriteString(line + "\n") }, funcr.Options{Verbosity: 2}))
		log.WithName("controller").WithValues("a", "b").Error(err, "Reconciling")
		expect.Same(t, "Logged as an error: "+err.Error(), wantError, !strings.Contains(out.String(), `"level":2`))
		expect.That(t, strings.Contains(out.String(), `"a":"b"`), "The values are lost:\n%s", out.String())
	}
}

func TestOneGenerationForAReconcile(t *testing.T) {
	r, _ := newReconciler(t)
	r.deps.trainer = testenv.Served(t, trainjob.Trainer21)
	deps := r.deps.of(expect.Must(r.deps.trainer.Served())(t))
	r.deps.trainer.Set(t.Context(), trainjob.Trainer23, nil)
	expect.That(t, deps.Field == patch.Of(trainjob.Trainer21) && deps.Runtimes.Served == trainjob.Trainer21,
		"What began with 2.1 goes on with field %s and runtimes of %s", deps.Field.Path(), deps.Runtimes.Served)
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
