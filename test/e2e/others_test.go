// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"slices"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

const trainJobCRD = "trainjobs.trainer.kubeflow.org"

var _ = Describe("Entries of other managers", Serial, func() {
	It("keep every byte and their order through admission, eviction and resumption", Label("invariant", "ours-only"), since(world.Trainer22), func(ctx context.Context) {
		w := newPools(ctx, "8", "0")
		extendCRD(ctx)
		w.MakeYAML(ctx, queuedYAML("shared")+`
  runtimePatches:
  - manager: example.com/z-first
    time: "2026-01-01T00:00:00Z"
    future: {zero: 0, empty: "", no: false, list: [], amount: 1024Mi}
    `+ofNode(`{volumes: [{name: scratch, emptyDir: {sizeLimit: 2048Mi}}], securityContext: {runAsNonRoot: false},
      containers: [{name: node, volumeMounts: [{name: scratch, mountPath: /scratch, readOnly: false}]}]}`)+`
  - manager: example.com/a-second
    time: "2026-01-01T00:00:00Z"
    future: {answer: 42}
`)
		w.keepsOthers(ctx, "shared", "runtimePatches", func(entry map[string]any) bool { return entry["manager"] == patch.Manager })
	}, SpecTimeout(specTimeout))

	It("may get another time while the TrainJob runs, of which the rules for patches say nothing", since(world.Trainer22), func(ctx context.Context) {
		w := newWorld(ctx)
		job := kit.TrainJob(w.Namespace, "timed").Obj()
		job.Spec.RuntimePatches = []trainer.RuntimePatch{{Manager: "example.com/user", Time: new(metav1.NewTime(time.Unix(1, 0)))}}
		w.Make(ctx, job)
		w.Edit(ctx, "timed", func(t *trainer.TrainJob) { t.Spec.RuntimePatches[0].Time = new(metav1.NewTime(time.Unix(2, 0))) })
	}, SpecTimeout(specTimeout))
})

// keepsOthers has a job start, stop and start again, all of whose entries but ours stay as they are, two of a field.
func (w *site) keepsOthers(ctx context.Context, job, field string, ours func(entry map[string]any) bool) {
	theirs := func() []any {
		return slices.DeleteFunc(w.raw(ctx, job, field), func(entry any) bool { return ours(entry.(map[string]any)) })
	}
	before := theirs()
	Expect(before).To(HaveLen(2))
	exactlyPlaced(w.EventuallyRuns(ctx, job, 1, onH100))
	Expect(theirs()).To(Equal(before), "after admission")
	w.Activate(ctx, job, false)
	w.EventuallyWorkload(ctx, job, HaveField("Status.Admission", BeNil()))
	Expect(theirs()).To(Equal(before), "after eviction")
	w.Activate(ctx, job, true)
	exactlyPlaced(w.EventuallyRuns(ctx, job, 1, onH100))
	Expect(theirs()).To(Equal(before), "after resumption")
}

// extendCRD has the API server keep an unknown field of patch entries until the spec's end.
func extendCRD(ctx context.Context) {
	DeferCleanup(cluster.ExtendCRD, false)
	Expect(cluster.ExtendCRD(ctx, true)).To(Succeed())
	Eventually(ctx, func(g Gomega) {
		probe := world.NewTrainJob()
		probe.Object["spec"] = map[string]any{
			"runtimeRef":     map[string]any{"name": "torch-distributed"},
			"runtimePatches": []any{map[string]any{"manager": "example.com/probe", "future": map[string]any{"kept": true}}},
		}
		probe.SetNamespace(metav1.NamespaceDefault)
		probe.SetName("probe")
		g.Expect(cluster.Client.Create(ctx, probe, client.DryRunAll)).To(Succeed())
		g.Expect(probe.Object).To(HaveKeyWithValue("spec", HaveKeyWithValue("runtimePatches", ContainElement(HaveKey("future")))))
	}).Should(Succeed())
}

var _ = Describe("Overrides of users", func() {
	It("keep every byte and their order through admission, eviction and resumption", core, Label("invariant", "ours-only"), until(world.Trainer21), func(ctx context.Context) {
		w := newPools(ctx, "8", "0")
		w.MakeYAML(ctx, queuedYAML("shared")+`
  labels: {team: research}
  podTemplateOverrides:
  - targetJobs: [{name: node}]
    spec:
      volumes:
      - {name: scratch, emptyDir: {sizeLimit: 2048Mi}}
      containers:
      - name: node
        volumeMounts:
        - {name: scratch, mountPath: /scratch, readOnly: false}
  - targetJobs: [{name: node}, {name: node}]
    metadata: {annotations: {example.com/empty: ""}}
`)
		w.keepsOthers(ctx, "shared", "podTemplateOverrides", func(entry map[string]any) bool {
			annotation, _, err := unstructured.NestedString(entry, "metadata", "annotations", patch.ManagerAnnotation)
			Expect(err).NotTo(HaveOccurred())
			return annotation == patch.Manager
		})
		Expect(get(ctx, w, world.NewTrainJob(), "shared").Object).To(HaveKeyWithValue("spec", HaveKeyWithValue("labels", HaveKeyWithValue("team", "research"))))
	}, SpecTimeout(specTimeout))

	It("are changed by server-side apply with force, and ours come back behind them", core, Label("invariant", "ours-only"), until(world.Trainer21), func(ctx context.Context) {
		w := newPools(ctx, "8", "0")
		apply := func(team string, opts ...client.ApplyOption) error {
			job := world.NewTrainJob()
			Expect(yaml.Unmarshal([]byte(`
metadata:
  name: applied
  labels: {kueue.x-k8s.io/queue-name: queue}
spec:
  runtimeRef: {name: torch-distributed}
  trainer:
    resourcesPerNode: {limits: {nvidia.com/gpu: "8"}}
  podTemplateOverrides:
  - targetJobs: [{name: node}]
    metadata: {annotations: {example.com/team: `+team+`}}
`), &job.Object)).To(Succeed())
			job.SetGroupVersionKind(trainer.GroupVersion.WithKind("TrainJob"))
			job.SetNamespace(w.Namespace)
			return w.Apply(ctx, client.ApplyConfigurationFromUnstructured(job), append(opts, client.FieldOwner("user"))...)
		}
		Expect(apply("red")).To(Succeed())
		w.EventuallyRuns(ctx, "applied", 1, onH100)
		w.Activate(ctx, "applied", false)
		w.EventuallyAtTheGate(ctx, "applied")

		Expect(apply("blue")).To(MatchError(SatisfyAll(ContainSubstring("conflict"), ContainSubstring(".spec.podTemplateOverrides"))))
		Expect(apply("blue", client.ForceOwnership)).To(Succeed())
		w.EventuallyAtTheGate(ctx, "applied")
		w.Activate(ctx, "applied", true)
		for _, pod := range w.EventuallyRuns(ctx, "applied", 1, onH100) {
			exactlyPlaced([]corev1.Pod{pod})
			Expect(pod.Annotations).To(HaveKeyWithValue("example.com/team", "blue"))
		}
	}, SpecTimeout(specTimeout))

	It("keep no TrainJob from its queue by what Trainer ignores of them", core, until(world.Trainer21), func(ctx context.Context) {
		w := newPools(ctx, "8", "0")
		w.MakeYAML(ctx, queuedYAML("ignored")+`
  podTemplateOverrides:
  - targetJobs: []
    spec: {serviceAccountName: nobody}
  - targetJobs: [{name: node}]
    metadata: {name: mine, finalizers: [example.com/mine], annotations: {example.com/team: red}}
`)
		pods := w.EventuallyRuns(ctx, "ignored", 1, onH100)
		exactlyPlaced(pods)
		Expect(pods[0].Annotations).To(HaveKeyWithValue("example.com/team", "red"))
	}, SpecTimeout(specTimeout))
})

// ofNode is what a runtime patch of the replicated job node says.
func ofNode(podSpec string) string {
	return `trainingRuntimeSpec: {template: {spec: {replicatedJobs: [{name: node, template: {spec: {template: {spec: ` + podSpec + `}}}}]}}}`
}

// queuedYAML begins the manifest of a TrainJob of 8 GPUs with its spec, which may go on.
func queuedYAML(name string) string {
	return `
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: ` + name + `, labels: {kueue.x-k8s.io/queue-name: queue}}
spec:
  runtimeRef: {name: torch-distributed}
  trainer:
    resourcesPerNode: {limits: {nvidia.com/gpu: 8}}`
}

// Trainer refuses every change of the list while a job runs: a client that applies its own
// list can only get through when ours is put back before Trainer looks.
var _ = It("The manager's entry on a running TrainJob comes back when a client applies a list that does not have it, or none at all, and the job runs on", core, Label("invariant", "exact"), func(ctx context.Context) {
	w := newPools(ctx, "16", "0")
	for _, job := range []*kit.TrainJobBuilder{w.Job("patched").PodAnnotations("example.com/user", "a", "b", "node"), w.Job("plain")} {
		theirs := job.Spec.RuntimePatches
		pods := w.MakeRunning(ctx, job.GPUs("8"), 1, onH100)
		before, wl := w.TrainJob(ctx, job.Name).Spec.RuntimePatches, w.Workload(ctx, job.Name)
		Expect(before).To(HaveLen(len(theirs)+1), "the job runs with our entry")

		w.Edit(ctx, job.Name, func(t *trainer.TrainJob) {
			metav1.SetMetaDataLabel(&t.ObjectMeta, "example.com/team", "vision")
			t.Spec.RuntimePatches = slices.DeleteFunc(t.Spec.RuntimePatches, func(e trainer.RuntimePatch) bool { return e.Manager == patch.Manager })
		})
		after := w.TrainJob(ctx, job.Name)
		Expect(after.Labels).To(HaveKeyWithValue("example.com/team", "vision"))
		Expect(after.Spec.RuntimePatches).To(Equal(before))
		w.ConsistentlyKeeps(ctx, job.Name, pods, wl)
	}
}, SpecTimeout(specTimeout))
