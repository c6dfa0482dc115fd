// SPDX-License-Identifier: Apache-2.0

package handback

import (
	"cmp"
	"encoding/json"
	"io"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/deactivation"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/placeholder"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestRun(t *testing.T) {
	type row struct {
		field, wantErr string
		served         trainjob.TrainerVersion
		// active has the manager's webhook answer.
		active bool
		// others are there, too; ownRuntimes has a namespace its own runtime, and the cluster none.
		others      []client.Object
		ownRuntimes bool
		// placed has the TrainJob wait with the placement of its last admission.
		placed bool
	}
	expect.Rows(t, map[string]row{
		"with Trainer 2.2 and later, while the manager is active": {field: "runtimePatches", served: trainjob.Trainer22, active: true, wantErr: "is active"},
		"with Trainer 2.1, while the manager is active":           {field: "podTemplateOverrides", served: trainjob.Trainer21, active: true, wantErr: "is active"},
		"with Trainer 2.2 and later, uninstalled":                 {field: "runtimePatches", served: trainjob.Trainer22},
		"with Trainer 2.1, uninstalled":                           {field: "podTemplateOverrides", served: trainjob.Trainer21},
		"beside a TrainJob of any name": {field: "runtimePatches", served: trainjob.Trainer22, others: []client.Object{
			&trainjob.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "dry-run"}}}},
		"with runtimes of namespaces alone":                                  {field: "runtimePatches", served: trainjob.Trainer22, ownRuntimes: true},
		"with runtimes of namespaces alone, while the manager is active":     {field: "runtimePatches", served: trainjob.Trainer22, ownRuntimes: true, active: true, wantErr: "is active"},
		"with runtimes of namespaces alone, and without a gate, while it is": {field: "runtimePatches", served: trainjob.Trainer22, ownRuntimes: true, active: true, placed: true, wantErr: "is active"},
	}, func(t *testing.T, tc row) {
		ours := patch.Of(tc.served)
		waits := &trainjob.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "waits"}}
		waits.Spec.Suspend = ptr.To(true)
		if !tc.placed {
			gate(t, ours, waits)
		}
		stored := clusterWith(t, tc.field, waits, func(job *trainjob.TrainJob) {
			if tc.active {
				gate(t, ours, job)
			}
		}, append(tc.others, &trainer.TrainingRuntime{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "own"}})...)
		if tc.ownRuntimes {
			expect.NoError(t, stored.Delete(t.Context(), &trainer.ClusterTrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: "torch"}}))
		}
		c := kit.Writes(stored, func(w kit.Write) error {
			if w.Verb == "create" && stored.Get(t.Context(), client.ObjectKeyFromObject(w.Object), &trainjob.TrainJob{}) == nil {
				return apierrors.NewAlreadyExists(schema.GroupResource{Resource: "trainjobs"}, w.Object.GetName())
			}
			return nil
		})
		expect.Says(t, run(t.Context(), c, io.Discard, "ns"), tc.wantErr)
		expect.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(waits), waits))
		expect.Same(t, "Unexpected gate", tc.active && !tc.placed, ours.HoldsGate(&waits.Spec))
	})
}

func TestHandBackOfAManagerCluster(t *testing.T) {
	type row struct {
		change func(*trainjob.TrainJob)
		served trainjob.TrainerVersion
		placed bool
		want   string
	}
	expect.Rows(t, map[string]row{
		"it waits for another cluster": {served: trainjob.Trainer22, want: "entry made"},
		"it runs in another cluster":   {served: trainjob.Trainer22, change: func(job *trainjob.TrainJob) { job.Spec.Suspend = ptr.To(false) }},
		"it waits in no queue":         {served: trainjob.Trainer22, change: func(job *trainjob.TrainJob) { job.Spec.ManagedBy = nil }},
		"its entry was lost on the way": {served: trainjob.Trainer22, want: "entry made", change: func(job *trainjob.TrainJob) {
			job.Spec.ManagedBy, job.Labels = nil, map[string]string{"kueue.x-k8s.io/queue-name": "q"}
		}},
		"nobody takes over":      {served: trainjob.Trainer22, placed: true},
		"Trainer has no entries": {served: trainjob.Trainer21},
	}, func(t *testing.T, tc row) {
		job := &trainjob.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "llm"}}
		job.Spec.Suspend, job.Spec.ManagedBy = ptr.To(true), ptr.To("kueue.x-k8s.io/multikueue")
		kit.With(job, tc.change)
		c := clusterWith(t, "runtimePatches", job, func(*trainjob.TrainJob) {})
		h := &handBack{client: c, served: tc.served, field: patch.Of(tc.served), placed: tc.placed}
		expect.Same(t, "Unexpected answer", tc.want, expect.Must(h.handBack(t.Context(), job))(t))
		expect.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(job), job))
		var entries string
		for _, p := range job.Spec.RuntimePatches {
			entry := expect.Must(p.Decode())(t)
			expect.That(t, entry.Time != nil, "Trainer would stamp the entry")
			entry.Time = nil
			entries += expect.JSON(t, entry)
		}
		want := map[string]string{"entry made": `{"manager":"kueue.x-k8s.io/manager","trainingRuntimeSpec":{"template":{"spec":{}}}}`}[tc.want]
		expect.Same(t, "Unexpected entries", want, entries)
	})
}

// Its eviction by the in-tree integration ends with "error restoring info to the trainjob", before the quota is given back.
func TestRunReportsWhatRunsWithoutAnEntry(t *testing.T) {
	const says = "runs without an entry of the in-tree integration"
	type row struct {
		field, err, said string
		change           func(*trainjob.TrainJob)
	}
	expect.Rows(t, map[string]row{
		"it ran through an upgrade from Trainer 2.1": {err: says},
		"it runs in another cluster":                 {change: func(job *trainjob.TrainJob) { job.Spec.ManagedBy = ptr.To("kueue.x-k8s.io/multikueue") }, said: says},
		"it has one": {change: func(job *trainjob.TrainJob) {
			patch.Of(trainjob.Trainer22).Set(&job.Spec, []patch.Placement{patch.Freed("node")})
		}},
		"it is in no queue": {change: func(job *trainjob.TrainJob) { job.Labels = nil }},
		"it ended": {change: func(job *trainjob.TrainJob) {
			job.Status.Conditions = []metav1.Condition{{Type: "Complete", Status: metav1.ConditionTrue}}
		}},
		"Trainer 2.1, without in-tree integration": {field: "podTemplateOverrides"},
	}, func(t *testing.T, tc row) {
		job := &trainjob.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "llm", Labels: map[string]string{"kueue.x-k8s.io/queue-name": "q"}}}
		kit.With(job, tc.change)
		var out strings.Builder
		err := run(t.Context(), clusterWith(t, cmp.Or(tc.field, "runtimePatches"), job, func(*trainjob.TrainJob) {}), &out, "ns")
		expect.Says(t, err, tc.err)
		expect.Same(t, "Unexpected word of it", tc.said != "", strings.Contains(out.String(), says))
	})
}

// The manager frees its pods while it is there, and takes the gate from no Job that runs.
func TestRunReportsWhatRunsWithTheGate(t *testing.T) {
	const says = "TrainJob ns/llm runs with the gate in its Jobs"
	type row struct {
		err    string
		change func(*batchv1.Job)
	}
	expect.Rows(t, map[string]row{
		"the in-tree integration was faster": {err: says},
		"it was not":                         {change: func(child *batchv1.Job) { child.Spec.Template.Spec.SchedulingGates = nil }},
		"its Job has ended":                  {change: kit.Completed},
		"somebody has labelled a Job":        {change: func(child *batchv1.Job) { child.OwnerReferences = nil }},
	}, func(t *testing.T, tc row) {
		job := &trainjob.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "llm", UID: "llm", Labels: map[string]string{kit.QueueLabel: "q"}}}
		patch.Of(trainjob.Trainer22).Set(&job.Spec, []patch.Placement{patch.Freed("node")})
		js := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "llm", UID: "js", OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job, trainjob.GVK)}}}
		child := kit.ChildJob(js, "node")
		child.Spec.Template.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: patch.AdmissionGate}}
		kit.With(child, tc.change)
		c := clusterWith(t, "runtimePatches", job, func(*trainjob.TrainJob) {}, js, child)
		expect.Says(t, run(t.Context(), c, io.Discard, "ns"), tc.err)
		expect.Says(t, Try(t.Context(), c, true), tc.err)
	})
}

func TestForetell(t *testing.T) {
	respelt := trainjob.NewRuntimePatch(json.RawMessage(`{"manager":"example.com/a","trainingRuntimeSpec":{"template":{"spec":{"replicatedJobs":[
		{"name":"node","template":{"spec":{"template":{"spec":{"volumes":[{"name":"v","emptyDir":{"sizeLimit":2000000000}}]}}}}}]}}}}`))
	type row struct {
		field, err, said string
		respelt          bool
		change           func(*trainjob.TrainJob)
	}
	expect.Rows(t, map[string]row{
		"it waits and can start":   {said: "nothing stands in the way of 1 TrainJob"},
		"it waits and cannot":      {respelt: true, err: "waits, and would never start"},
		"it runs and cannot stop":  {respelt: true, change: func(job *trainjob.TrainJob) { job.Spec.Suspend = nil }, err: "could not stop it"},
		"it runs without an entry": {change: func(job *trainjob.TrainJob) { job.Spec.Suspend, job.Spec.RuntimePatches = nil, nil }, err: "runs without an entry"},
		"it is in no queue":        {respelt: true, change: func(job *trainjob.TrainJob) { job.Labels, job.Spec.RuntimePatches = nil, nil }, said: "nothing stands in the way of 1 TrainJob"},
		"Trainer 2.1":              {field: "podTemplateOverrides", err: "does not serve Trainer 2.1"},
	}, func(t *testing.T, tc row) {
		job := &trainjob.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "llm", UID: "llm", Labels: map[string]string{"kueue.x-k8s.io/queue-name": "q"}}}
		job.Spec.Suspend = ptr.To(true)
		gate(t, patch.Of(trainjob.Trainer23), job)
		kit.With(job, tc.change)
		if tc.respelt {
			job.Spec.RuntimePatches = append([]trainjob.RuntimePatch{respelt}, job.Spec.RuntimePatches...)
		}
		// The manager is active, and nothing is written.
		c := clusterWith(t, cmp.Or(tc.field, "runtimePatches"), job, func(*trainjob.TrainJob) { t.Error("It asks who is active") })
		before := job.ResourceVersion
		var out strings.Builder
		expect.Says(t, foretell(t.Context(), c, &out, "ns"), tc.err)
		expect.That(t, strings.Contains(out.String(), tc.said), "Unexpected output %q", out.String())
		expect.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(job), job))
		expect.That(t, before == "" || before == job.ResourceVersion, "It was written")
	})
}

// The in-tree integration adds its entry to whatever is created, and two of one manager are refused.
func TestHandBackOfWhatIsCreatedAgain(t *testing.T) {
	ours := patch.Of(trainjob.Trainer23)
	job := &trainjob.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "llm", UID: "llm", Labels: map[string]string{"kueue.x-k8s.io/queue-name": "q"}}}
	job.Spec.Suspend = ptr.To(true)
	gate(t, ours, job)
	c := clusterWith(t, "runtimePatches", job, func(*trainjob.TrainJob) {})
	h := &handBack{client: c, served: trainjob.Trainer23, field: ours, respelt: map[types.UID]string{"llm": "spec.trainer"}}
	// One that an earlier run has freed has an entry without the gate.
	ours.Set(&job.Spec, []patch.Placement{patch.Freed("node")})
	expect.NoError(t, c.Update(t.Context(), job))
	expect.Must(h.handBack(t.Context(), job))(t)
	expect.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(job), job))
	expect.That(t, !ours.Has(&job.Spec), "It has an entry")
	expect.Says(t, h.unwritable(job, false), "kubectl replace --force")
	job.Spec.Suspend = nil
	expect.Says(t, h.unwritable(job, false), "could not stop it")
	job.Labels = nil
	expect.NoError(t, h.unwritable(job, false))
}

func TestHandBackOfAWorker(t *testing.T) {
	held := func(name string, deleted bool, finalizers ...string) *kueue.Workload {
		wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Finalizers: finalizers}}
		if deleted {
			wl.DeletionTimestamp = ptr.To(metav1.Now())
		}
		return wl
	}
	const kueues = kueue.ResourceInUseFinalizerName
	c := clusterWith(t, "runtimePatches", &trainjob.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "llm"}}, func(*trainjob.TrainJob) {},
		held("runs", false, kueues, placeholder.Finalizer), held("local", false, kueues), held("gone", true, placeholder.Finalizer),
		kit.With(held("stops", false, kueues, placeholder.Finalizer), deactivation.Mark), kit.With(held("over", false, kueues), deactivation.Mark, kit.Is(kueue.WorkloadFinished, "")),
		&kueue.Workload{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "remainder-1", Labels: map[string]string{placeholder.Label: "former"}, Annotations: map[string]string{placeholder.RunsAnnotation: "run"},
		}})
	var out strings.Builder
	expect.NoError(t, run(t.Context(), c, &out, "ns"))
	want := "0 of 1 TrainJobs that are not over changed\nworkload ns/gone: finalizer removed\nworkload ns/runs: finalizer removed\nworkload ns/stops: finalizer removed, deactivated\n"
	expect.Same(t, "Unexpected output", want, out.String())
	var left kueue.WorkloadList
	expect.NoError(t, c.List(t.Context(), &left))
	got := map[string][]string{}
	for i := range left.Items {
		wl := &left.Items[i]
		got[wl.Name] = wl.Finalizers
		expect.Same(t, wl.Name+" is active", wl.Name != "stops", kueuelib.IsActive(wl))
		expect.Same(t, wl.Name+" is to be deactivated", wl.Name == "over", deactivation.Marked(wl))
	}
	expect.Same(t, "Unexpected Workloads", map[string][]string{"runs": {kueues}, "local": {kueues}, "stops": {kueues}, "over": {kueues}, "remainder-1": nil}, got)
	done := release(kit.With(held("stops", false), deactivation.Mark), false)
	expect.That(t, done == nil, "Where nobody stops its pods, they lose their quota: %v", done)
}

// Trainer's webhook writes the whole TrainJob again where it stamps an entry, and the API server refuses that.
func TestHandBackHasTrainerStampNothing(t *testing.T) {
	ours := patch.Of(trainjob.Trainer23)
	waits := &trainjob.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "waits"}}
	waits.Spec.Suspend = ptr.To(true)
	gate(t, ours, waits)
	stored := clusterWith(t, "runtimePatches", waits, func(*trainjob.TrainJob) {})
	writes := 0
	c := kit.Writes(stored, func(w kit.Write) error {
		if w.Verb != "patch" {
			return nil
		}
		var before trainjob.TrainJob
		expect.NoError(t, stored.Get(t.Context(), client.ObjectKeyFromObject(w.Object), &before))
		writes++
		spec := &w.Object.(*trainjob.TrainJob).Spec
		stamps := ours.Has(spec) && (ours.Has(&before.Spec) || ours.Time(spec).IsZero())
		expect.That(t, !stamps, "Write %d has Trainer stamp the entry", writes)
		return nil
	})
	expect.NoError(t, run(t.Context(), c, io.Discard, "ns"))
	expect.NoError(t, stored.Get(t.Context(), client.ObjectKeyFromObject(waits), waits))
	expect.That(t, writes == 2 && ours.Has(&waits.Spec) && !ours.HoldsGate(&waits.Spec), "After %d writes: %v", writes, waits.Spec.RuntimePatches)
}

func gate(t *testing.T, ours patch.Field, job *trainjob.TrainJob) {
	t.Helper()
	ours.Set(&job.Spec, []patch.Placement{patch.Gated("node")})
}

// clusterWith returns a cluster with a TrainJob whose CRD has the field, and with a webhook
// for the TrainJobs that are created.
func clusterWith(t *testing.T, field string, job *trainjob.TrainJob, webhook func(*trainjob.TrainJob), others ...client.Object) client.Client {
	t.Helper()
	crd := kit.CRD(trainjob.CRDName, trainjob.GVK.Version, field)
	runtime := &trainer.ClusterTrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: "torch"}}
	stored := kit.Fake(kit.Scheme(trainjob.AddToScheme), crd, runtime, job).WithObjects(others...).Build()
	return kit.Writes(stored, func(w kit.Write) error {
		if w.Verb == "create" {
			webhook(w.Object.(*trainjob.TrainJob))
		}
		return nil
	})
}

func TestUngateJobSet(t *testing.T) {
	pod := func(template string) string {
		return `{"metadata":{"resourceVersion":"7"},"spec":{"replicatedJobs":[{"name":"node","future":1,"template":{"spec":{"template":` + template + `}}}]}}`
	}
	expect.Rows(t, map[string]expect.Row[string, string]{
		"the gate goes, its label says so, everything else stays": {In: `{"metadata":{"labels":{"a":"b","kueue-trainer.dev/gated":"true"}},"spec":{"new":0,"schedulingGates":[{"name":"mine"},{"name":"kueue-trainer.dev/admission"}]}}`,
			Want: `{"metadata":{"labels":{"a":"b","kueue-trainer.dev/gated":"false"}},"spec":{"new":0,"schedulingGates":[{"name":"mine"}]}}`},
		"the only gate leaves an empty list": {In: `{"metadata":{"labels":{"kueue-trainer.dev/gated":"true"}},"spec":{"schedulingGates":[{"name":"kueue-trainer.dev/admission"}]}}`,
			Want: `{"metadata":{"labels":{"kueue-trainer.dev/gated":"false"}},"spec":{"schedulingGates":[]}}`},
		"pods without metadata get some": {In: `{"spec":{"schedulingGates":[{"name":"kueue-trainer.dev/admission"}]}}`,
			Want: `{"metadata":{"labels":{"kueue-trainer.dev/gated":"false"}},"spec":{"schedulingGates":[]}}`},
		"who has no gate is left alone": {In: `{"spec":{}}`, Want: `{"spec":{}}`},
	}, func(t *testing.T, tc expect.Row[string, string]) {
		js := &jobsetapi.JobSet{}
		expect.NoError(t, json.Unmarshal([]byte(pod(tc.In)), js))
		ungate := expect.Must(ungateJobSet(js))(t)
		data := expect.Must(ungate.Data(js))(t)
		operations := expect.Must(jsonpatch.DecodePatch(data))(t)
		got := expect.Must(operations.Apply([]byte(pod(tc.In))))(t)
		expect.Same(t, "Unexpected JobSet", expect.FromJSON[any](t, pod(tc.Want)), expect.FromJSON[any](t, string(got)))
	})
}
