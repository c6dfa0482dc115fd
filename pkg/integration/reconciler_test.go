// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"

	"github.com/kueue-trainer/kueue-trainer/pkg/deactivation"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/testenv"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/podsets"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
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
	expect.That(t, again.ResourceVersion == gated.ResourceVersion && reads == 0,
		"A TrainJob that has the gate is written, or its runtime read %d times", reads)
}

// kubectl replace --force deletes a TrainJob and makes it again at once.
func TestFormerWorkloadGivesItsQuotaBack(t *testing.T) {
	stored, _ := suspendedJob()
	stored.CreationTimestamp = metav1.Now()
	former := stored.DeepCopy()
	former.UID = "former"
	wl := inttest.WorkloadOf(former, kit.Admitted, kit.Held)
	r, _ := newReconciler(t, stored, wl)
	expect.NoError(t, r.deps.client.Delete(t.Context(), wl))
	expect.Must(r.Reconcile(t.Context(), jobRequest))(t)
	expect.That(t, !inttest.Exists(t, r.deps.client, wl), "The former job's Workload is still there")
	var left kueue.WorkloadList
	expect.NoError(t, r.deps.client.List(t.Context(), &left))
	expect.That(t, len(left.Items) == 0, "The new job queues before its child Jobs are there: %v", left.Items)
}

// A start is told by one event, with the flavors, and one that repeats another is told, too.
// Whoever may edit Workloads may keep one, and Kueue counts the quota of what is there.
func TestDeletedWorkloadThatStaysHoldsNoQuota(t *testing.T) {
	tests := map[string]struct {
		finalizers []string
		alive      bool
		// runs is set for a job that is not suspended yet.
		runs bool
		pods []client.Object
		want bool
	}{
		"let go, and kept by somebody": {finalizers: []string{"example.com/mine"}, want: true},
		"of a job that is to stop":     {finalizers: []string{"example.com/mine"}, runs: true},
		"of a job with a pod left":     {finalizers: []string{"example.com/mine"}, pods: []client.Object{inttest.PodOf("team", "llm")}},
		"not let go":                   {finalizers: []string{kueue.ResourceInUseFinalizerName, "example.com/mine"}},
		"of a copy, not let go":        {finalizers: []string{placeholder.Finalizer}},
		"not deleted":                  {finalizers: []string{"example.com/mine"}, alive: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			wl := inttest.AdmittedOf("uid")
			wl.Finalizers = tc.finalizers
			c := inttest.Fake(append(tc.pods, wl)...).WithStatusSubresource(wl).Build()
			if !tc.alive {
				expect.NoError(t, c.Delete(t.Context(), wl))
			}
			inttest.Reload(t, c, wl)
			r := &reconciler{deps: dependenciesOn(t, c, testenv.Describer(t, c))}
			r.deps.live = inttest.PodsByPhase(c)
			trainJob := inttest.Job("uid")
			trainJob.Spec.Suspend = new(!tc.runs)
			expect.NoError(t, finishDeletedWorkloads(t.Context(), jobOf(t, r, trainJob)).err)
			inttest.Reload(t, c, wl)
			expect.Same(t, "The Workload is finished", tc.want, kueuelib.IsFinished(wl))
		})
	}
}

func TestEveryStartIsToldOnce(t *testing.T) {
	stored, js := suspendedJob()
	r, recorder := newReconciler(t, stored, js)
	r.deps.Defaults = podsets.FixedDefaults(servedDefaults(t))
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
	prebuilt := func(job *trainjob.TrainJob) {
		job.Labels[kueueconstants.PrebuiltWorkloadLabel] = inttest.WorkloadOf(job).Name
	}
	tests := map[string]struct {
		replicas, pods int32
		job            func(*trainjob.TrainJob)
		wl             func(*kueue.Workload)
		// old has the cache be behind the API server, which has fewer pods.
		old        bool
		kept       bool
		wantMarked bool
	}{
		"the JobSet is what the job was admitted for":         {replicas: 1, pods: 1, kept: true},
		"the JobSet has more Jobs":                            {replicas: 2, pods: 1},
		"a Job that the cache has from before it was scaled":  {replicas: 1, pods: 2, old: true, kept: true},
		"somebody scaled a Job":                               {replicas: 1, pods: 2},
		"the job was deactivated meanwhile, and stops anyway": {replicas: 2, pods: 1, wl: kit.Deactivated, kept: true},
		"the JobSet of a prebuilt Workload has more Jobs":     {replicas: 2, pods: 1, job: prebuilt, kept: true, wantMarked: true},
		"that of a copy of MultiKueue's does":                 {replicas: 2, pods: 1, job: prebuilt, wl: kit.Copied},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			stored, js := disagreeing(false, false, false, time.Now().Add(-time.Hour))
			kit.With(stored, tc.job)
			js.Spec.ReplicatedJobs = kit.ReplicatedJobs("node", tc.replicas)
			child := kit.ChildJob(js, "node", kit.Active(1))
			child.Spec.Parallelism = &tc.pods
			wl := inttest.WorkloadOf(stored, kit.Admitted, tc.wl)
			wl.Spec.PodSets = []kueue.PodSet{{Name: "node", Count: 1}}
			r, recorder := newReconciler(t, js, child, wl)
			if tc.old {
				now := child.DeepCopy()
				now.Spec.Parallelism = new(int32(1))
				r.deps.live = inttest.Fake(js, now).Build()
			}
			expect.NoError(t, ensureWithinQuota(t.Context(), jobOf(t, r, stored)).err)
			expect.Same(t, "The job keeps its Workload", tc.kept, inttest.Exists(t, r.deps.client, wl))
			if tc.wantMarked {
				inttest.Reload(t, r.deps.client, wl)
				wantTold(t, eventsSoFar(recorder, ""), "Warning CannotStart gives its quota back, cannot run on it: prebuilt Workload")
			}
			expect.Same(t, "It is to be deactivated", tc.wantMarked, deactivation.Marked(wl))
		})
	}
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
	tests := map[string]struct {
		rules []result
		want  result
		asked int
	}{
		"none has anything to say":         {rules: []result{{}, {}}, asked: 2},
		"the earliest time counts":         {rules: []result{minute, second, {}}, want: second, asked: 3},
		"one ends it":                      {rules: []result{minute, lookAgain(time.Second), second}, want: lookAgain(time.Second), asked: 2},
		"one that does not queue":          {rules: []result{unqueued(time.Second), minute}, want: unqueued(time.Second), asked: 1},
		"a view from before our own write": {rules: []result{{done: true, stale: true}, minute}, want: result{done: true, stale: true}, asked: 1},
		"one comes to an error":            {rules: []result{minute, ofError(wrong), done(nil)}, want: result{again: time.Minute, err: wrong}, asked: 2},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			asked := 0
			var rules []rule
			for _, r := range tc.rules {
				rules = append(rules, func(context.Context, *job) result { asked++; return r })
			}
			got := untilEnd(t.Context(), &job{}, rules)
			expect.That(t, got == tc.want && asked == tc.asked, "it came to %+v by %d rules, want %+v by %d", got, asked, tc.want, tc.asked)
		})
	}
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
	ended := kit.True(trainer.TrainJobComplete, "")
	tests := map[phase]func(*trainjob.TrainJob){
		phaseGone: func(j *trainjob.TrainJob) { *j = trainjob.TrainJob{} },
		phaseDeleting: func(j *trainjob.TrainJob) {
			j.DeletionTimestamp = new(metav1.Now())
			j.Status.Conditions = []metav1.Condition{ended}
		},
		phaseFinished:  func(j *trainjob.TrainJob) { j.Status.Conditions = []metav1.Condition{ended} },
		phaseSuspended: func(j *trainjob.TrainJob) { j.Spec.Suspend = new(true) },
		phaseRunning:   func(j *trainjob.TrainJob) { j.Spec.Suspend = new(false) },
	}
	for want, change := range tests {
		t.Run(string(want), func(t *testing.T) {
			o := &observed{TrainJob: *inttest.Job("uid")}
			change(&o.TrainJob)
			expect.Same(t, "Unexpected phase", want, o.phase())
			expect.Same(t, "It is alive", want == phaseSuspended || want == phaseRunning, o.alive())
		})
	}
}
