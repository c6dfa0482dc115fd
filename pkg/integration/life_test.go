// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobclient"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/podtracking"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// life is a TrainJob with what the manager writes of it; everybody else is played by the test.
type life struct {
	t *testing.T
	client.Client
	r   *reconciler
	key client.ObjectKey
	// told is the story so far.
	told strings.Builder
}

// TestLifeOfATrainJob has docs/architecture.md tell what the manager writes in which order.
func TestLifeOfATrainJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLife(t)
		var js *jobsetapi.JobSet
		var child *batchv1.Job
		for _, step := range []struct {
			what string
			does func()
		}{
			{"user      creates TrainJob llm in queue q; the webhook suspends it and puts our entry, at the gate", func() {}},
			{"Trainer   creates JobSet llm, suspended; JobSet creates Job llm-node-0, suspended and gated", func() { js, child = l.makeJobSet() }},
			{"Kueue     admits the Workload to flavor h100", func() { l.admit("h100") }},
			{"Trainer   resumes the JobSet, JobSet the Job; its pod runs", func() { l.runs(js, child, true) }},
			{"Kueue     preempts the Workload", func() { l.status(evictedAgo(0)) }},
			{"Trainer   suspends the JobSet, JobSet the Job; its pod is gone", func() { l.runs(js, child, false) }},
			{"Kueue     admits the Workload to flavor a100", func() { l.admit("a100") }},
			{"Trainer   resumes the JobSet, JobSet the Job; its pod runs", func() { l.runs(js, child, true) }},
			{"Trainer   reports that the job is complete", func() { l.complete(js, child) }},
		} {
			fmt.Fprintln(&l.told, step.what)
			step.does()
			l.looks()
		}
		page := expect.Must(os.ReadFile("../../docs/architecture.md"))(t)
		expect.That(t, strings.Contains(string(page), l.told.String()), "docs/architecture.md tells another life than this:\n%s", l.told.String())
	})
}

func newLife(t *testing.T) *life {
	t.Helper()
	job := inttest.Job("uid")
	job.Generation, job.Labels = 1, map[string]string{"kueue.x-k8s.io/queue-name": "q"}
	job.Spec.RuntimeRef.Name, job.Spec.Suspend = "torch", new(true)
	r, _ := onStatuses(t, kit.Namespace(job.Namespace), kit.PlainFlavor("h100", "gpu", "h100"), kit.PlainFlavor("a100", "gpu", "a100"))
	c := r.deps.client
	l := &life{t: t, Client: c, r: r, key: client.ObjectKeyFromObject(job)}
	recorded := kit.Writes(c, func(w kit.Write) error { l.writes(w); return nil })
	deps := r.deps
	deps.Describer.Runtimes, deps.Describer.Cached = trainjob.NewRuntimes(c, c), c
	deps.client = jobclient.New(recorded, deps.live, deps.trainer, deps.expectations, deps.metrics)
	spec, _, err := deps.Gated(t.Context(), job)
	expect.NoError(t, err)
	job.Spec = spec
	expect.NoError(t, c.Create(t.Context(), job))
	return l
}

func (l *life) writes(w kit.Write) {
	_, kind, _ := strings.Cut(fmt.Sprintf("%T", w.Object), ".")
	verb, what := strings.TrimSuffix(w.Verb, "e")+"es", ""
	switch {
	case w.Verb == "patch" && w.SubResource != "":
		what = l.conditions(w.Object)
	case w.Verb == "patch":
		what = changedBy(l.t, w.Object, w.Patch)
	case w.SubResource != "":
		what = " " + w.SubResource
	}
	fmt.Fprintln(&l.told, "  manager "+verb, kind+what)
}

// looks has the manager look until it would write no more, also when the time is over for which controllers may carry on
// what they saw before.
func (l *life) looks() {
	l.t.Helper()
	for range 100 {
		before := l.told.Len()
		result := expect.Must(l.r.Reconcile(l.t.Context(), ctrl.Request{NamespacedName: l.key}))(l.t)
		if soon := result.RequeueAfter; soon > 0 && soon <= podtracking.ResumeGrace {
			<-time.After(soon)
		} else if before == l.told.Len() {
			return
		}
	}
	l.t.Fatalf("It writes again and again:\n%s", l.told.String())
}

func changedBy(t *testing.T, obj client.Object, p client.Patch) string {
	t.Helper()
	data := expect.Must(p.Data(obj))(t)
	var paths []string
	if p.Type() == types.JSONPatchType {
		var ops []struct{ Op, Path string }
		expect.NoError(t, json.Unmarshal(data, &ops))
		for _, op := range ops {
			if op.Op != "test" {
				paths = append(paths, strings.ReplaceAll(strings.TrimPrefix(op.Path, "/"), "/", "."))
			}
		}
	} else {
		var merge map[string]map[string]any
		expect.NoError(t, json.Unmarshal(data, &merge))
		delete(merge["metadata"], "resourceVersion")
		for _, part := range slices.Sorted(maps.Keys(merge)) {
			for _, field := range slices.Sorted(maps.Keys(merge[part])) {
				paths = append(paths, part+"."+field)
			}
		}
	}
	return ": " + strings.Join(paths, ", ")
}

// conditions says which conditions of a Workload are about to change.
func (l *life) conditions(obj client.Object) string {
	l.t.Helper()
	var said []string
	for _, c := range obj.(*kueue.Workload).Status.Conditions {
		if !apimeta.IsStatusConditionPresentAndEqual(theWorkload(l.t, l).Status.Conditions, c.Type, c.Status) {
			said = append(said, fmt.Sprintf("%s %s", c.Type, c.Status))
		}
	}
	slices.Sort(said)
	return " status: " + strings.Join(said, ", ")
}

func change[T client.Object](l *life, obj T, change func(T)) {
	l.t.Helper()
	inttest.Reload(l.t, l, obj)
	change(obj)
	if child, is := any(obj).(*batchv1.Job); is {
		expect.NoError(l.t, l.Status().Update(l.t.Context(), child.DeepCopy()))
		inttest.Reload(l.t, l, obj)
		change(obj)
	}
	expect.NoError(l.t, l.Update(l.t.Context(), obj))
}

func (l *life) makeJobSet() (*jobsetapi.JobSet, *batchv1.Job) {
	l.t.Helper()
	var job trainjob.TrainJob
	expect.NoError(l.t, l.Get(l.t.Context(), l.key, &job))
	js := expect.Must(l.r.deps.Render(l.t.Context(), &job))(l.t)
	js.ObjectMeta = inttest.JobSetOf(&job, true).ObjectMeta
	js.Spec.Suspend = new(true)
	expect.NoError(l.t, l.Create(l.t.Context(), js))
	template := js.Spec.ReplicatedJobs[0].Template
	child := kit.ChildJob(js, "node")
	child.Spec = template.Spec
	child.Spec.Suspend = new(true)
	expect.NoError(l.t, l.Create(l.t.Context(), child))
	l.says(trainer.TrainJobSuspended, metav1.ConditionTrue)
	return js, child
}

func (l *life) says(condition string, status metav1.ConditionStatus) {
	l.t.Helper()
	change(l, inttest.Job("uid"), func(job *trainjob.TrainJob) {
		apimeta.SetStatusCondition(&job.Status.Conditions, metav1.Condition{Type: condition, Status: status, Reason: "Test"})
	})
}

func (l *life) runs(js *jobsetapi.JobSet, child *batchv1.Job, runs bool) {
	l.t.Helper()
	suspended := metav1.ConditionTrue
	if runs {
		suspended = metav1.ConditionFalse
	}
	change(l, js, func(js *jobsetapi.JobSet) {
		js.Spec.Suspend, js.Status.Conditions = new(!runs), []metav1.Condition{{Type: string(jobsetapi.JobSetSuspended), Status: suspended}}
	})
	change(l, child, func(child *batchv1.Job) {
		child.Spec.Suspend, child.Status = new(!runs), batchv1.JobStatus{Conditions: []batchv1.JobCondition{{Type: batchv1.JobSuspended, Status: corev1.ConditionStatus(suspended)}}}
		if runs {
			child.Status.Active = 1
		}
	})
	l.says(trainer.TrainJobSuspended, suspended)
}

func (l *life) complete(js *jobsetapi.JobSet, child *batchv1.Job) {
	l.t.Helper()
	change(l, child, func(child *batchv1.Job) {
		child.Status = batchv1.JobStatus{Succeeded: 1}
		kit.Completed(child)
	})
	change(l, js, func(js *jobsetapi.JobSet) { js.Status.TerminalState = string(jobsetapi.JobSetCompleted) })
	l.says(trainer.TrainJobComplete, metav1.ConditionTrue)
}

// status has Kueue change the status of the Workload.
func (l *life) status(change func(*kueue.Workload)) {
	l.t.Helper()
	expect.NoError(l.t, l.Status().Update(l.t.Context(), kit.With(theWorkload(l.t, l), change)))
}

func (l *life) admit(flavor kueue.ResourceFlavorReference) {
	l.t.Helper()
	l.status(func(wl *kueue.Workload) {
		kit.Admitted(wl)
		kit.Isnt(kueue.WorkloadEvicted, kueue.WorkloadQuotaReserved)(wl)
		wl.Status.Admission = &kueue.Admission{ClusterQueue: "gpus", PodSetAssignments: []kueue.PodSetAssignment{{
			Name: "node", Count: new(int32(1)), Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"nvidia.com/gpu": flavor},
		}}}
	})
}
