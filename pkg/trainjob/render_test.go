// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	trainercore "github.com/kubeflow/trainer/v2/pkg/runtime/core"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	jobsetapply "sigs.k8s.io/jobset/client-go/applyconfiguration/jobset/v1alpha2"
	"sigs.k8s.io/yaml"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

const torchRuntime = `
mlPolicy: {numNodes: 2, torch: {}}
template:
  metadata: {labels: {of: runtime}}
  spec:
    replicatedJobs:
    - name: dataset-initializer
      template:
        metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: dataset-initializer}}
        spec: {template: {spec: {containers: [{name: dataset-initializer, image: fetch}]}}}
    - name: node
      dependsOn: [{name: dataset-initializer, status: Complete}]
      template:
        metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
        spec:
          template:
            spec:
              nodeSelector: {pool: base}
              containers:
              - name: node
                image: torch
                resources: {requests: {cpu: "4"}, limits: {nvidia.com/gpu: 1, memory: 8Gi}}
    - name: aside
      replicas: 3
      template:
        spec: {parallelism: 2, completions: 5, template: {spec: {containers: [{name: aside, image: aside}]}}}
    - name: none # Trainer cannot say zero: it leaves the field out, and JobSet makes one.
      replicas: 0
      template:
        spec: {parallelism: 0, template: {spec: {containers: [{name: none, image: none}]}}}
`

const mpiRuntime = `
mlPolicy: {numNodes: 1, mpi: {numProcPerNode: 1, mpiImplementation: OpenMPI, sshAuthMountPath: /home/mpiuser/.ssh, runLauncherAsNode: true}}
template:
  spec:
    replicatedJobs:
    - name: node
      template: {spec: {template: {spec: {containers: [{name: node, image: mpi}]}}}}
    - name: launcher
      template:
        metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
        spec: {template: {spec: {containers: [{name: node, image: mpi}]}}}
`

func testRenderer(t testing.TB) *Renderer {
	t.Helper()
	return expect.Must(NewRenderer(t.Context(), testScheme))(t)
}

func render(t testing.TB, job *TrainJob, runtime string, patches ...RuntimePatch) *jobsetapi.JobSet {
	t.Helper()
	return expect.Must(testRenderer(t).Render(t.Context(), job, expect.FromYAML[*trainer.TrainingRuntimeSpec](t, runtime), patches))(t)
}

func jobWithTrainer(tr *trainer.Trainer) *TrainJob {
	return &TrainJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job", UID: "uid"},
		Spec:       Spec{RuntimeRef: trainer.RuntimeRef{Name: "torch"}, Trainer: tr, Suspend: ptr.To(true)},
	}
}

// podSpecPatch returns an entry that merges podSpec into the pods of one replicated job.
func podSpecPatch(t testing.TB, manager, job, podSpec string) RuntimePatch {
	t.Helper()
	return expect.FromYAML[RuntimePatch](t, `{manager: "`+manager+`", trainingRuntimeSpec: {template: {spec: {replicatedJobs: [`+
		`{name: `+job+`, template: {spec: {template: {spec: `+podSpec+`}}}}]}}}}`)
}

func replicatedJob(t testing.TB, js *jobsetapi.JobSet, name string) *jobsetapi.ReplicatedJob {
	t.Helper()
	at := slices.IndexFunc(js.Spec.ReplicatedJobs, func(rj jobsetapi.ReplicatedJob) bool { return rj.Name == name })
	expect.Need(t, at >= 0, "There is no replicated job %q", name)
	return &js.Spec.ReplicatedJobs[at]
}

type counts struct {
	Name                    string
	Replicas                int32
	Parallelism, Completion *int32
}

func each(name string, replicas, pods int32) counts {
	return counts{name, replicas, ptr.To(pods), ptr.To(pods)}
}

func TestRenderCounts(t *testing.T) {
	patched := podSpecPatch(t, "a.io/x", "none", "{nodeSelector: {k: v}}")
	nodes := func(n int32) *trainer.Trainer { return &trainer.Trainer{NumNodes: &n} }
	torch := func(nodes int32) []counts {
		return []counts{each("dataset-initializer", 1, 1), each("node", 1, nodes), each("aside", 3, 2), each("none", 1, 1)}
	}
	mpi := func(nodes, launchers int32) []counts {
		return []counts{each("node", 1, nodes), each("launcher", 1, launchers)}
	}
	type row struct {
		runtime string
		trainer *trainer.Trainer
		patches []RuntimePatch
		want    []counts
	}
	expect.Rows(t, map[string]row{
		"torch takes numNodes from the runtime, other jobs their own replicas and parallelism": {runtime: torchRuntime, want: torch(2)},
		"torch takes numNodes from the TrainJob":                                               {runtime: torchRuntime, trainer: nodes(7), want: torch(7)},
		// A patch of a replicated job must not bring its replicas back to the default.
		"a patch changes no counts and no order":                          {runtime: torchRuntime, patches: []RuntimePatch{patched}, want: torch(2)},
		"MPI with runLauncherAsNode takes the launcher off the nodes":     {runtime: mpiRuntime, trainer: nodes(5), want: mpi(4, 1)},
		"MPI with runLauncherAsNode keeps one node at the least":          {runtime: mpiRuntime, trainer: nodes(1), want: mpi(1, 1)},
		"MPI without runLauncherAsNode has all nodes beside the launcher": {runtime: strings.Replace(mpiRuntime, "runLauncherAsNode: true", "runLauncherAsNode: false", 1), trainer: nodes(5), want: mpi(5, 1)},
		// What Trainer 2.3 really does: numNodes of the runtime counts for the replicated
		// job that carries the trainer's label, which is the launcher.
		"MPI with several nodes in the runtime has as many launchers": {runtime: strings.Replace(mpiRuntime, "numNodes: 1", "numNodes: 4", 1), want: mpi(1, 4)},
		"MPI as the runtime says":                                     {runtime: mpiRuntime, want: mpi(1, 1)},
	}, func(t *testing.T, tc row) {
		js := render(t, jobWithTrainer(tc.trainer), tc.runtime, tc.patches...)
		expect.Same(t, "Unexpected counts", tc.want, expect.Each(js.Spec.ReplicatedJobs, func(rj jobsetapi.ReplicatedJob) counts {
			return counts{rj.Name, rj.Replicas, rj.Template.Spec.Parallelism, rj.Template.Spec.Completions}
		}))
	})
}

func TestRenderMergesPatchesInOrder(t *testing.T) {
	job := jobWithTrainer(nil)
	// Render takes the patches it is given, not the job's.
	job.Spec.RuntimePatches = []RuntimePatch{podSpecPatch(t, "z.io/x", "node", "{nodeSelector: {z: z}}")}
	first := podSpecPatch(t, "a.io/x", "node",
		`{nodeSelector: {a: a, both: a}, tolerations: [{key: a}], schedulingGates: [{name: a.io/gate}], serviceAccountName: sa}`)
	second := podSpecPatch(t, "b.io/x", "node", `{nodeSelector: {b: b, both: b, pool: b}, tolerations: [{key: b}], schedulingGates: [{name: b.io/gate}]}`)

	both := func(winner string) corev1.PodSpec {
		return corev1.PodSpec{
			NodeSelector:       map[string]string{"a": "a", "b": "b", "both": winner, "pool": "b"},
			Tolerations:        []corev1.Toleration{{Key: winner}},
			SchedulingGates:    []corev1.PodSchedulingGate{{Name: "b.io/gate"}, {Name: "a.io/gate"}},
			ServiceAccountName: "sa",
		}
	}
	expect.Rows(t, map[string]expect.Row[[]RuntimePatch, corev1.PodSpec]{
		"none":                      {Want: corev1.PodSpec{NodeSelector: map[string]string{"pool": "base"}}},
		"the later one wins":        {In: []RuntimePatch{first, second}, Want: both("b")},
		"and so in the other order": {In: []RuntimePatch{second, first}, Want: both("a")},
		"entries without a spec change nothing": {In: []RuntimePatch{expect.FromYAML[RuntimePatch](t, "{manager: a.io/x}"), expect.FromYAML[RuntimePatch](t, "{manager: b.io/x, trainingRuntimeSpec: {template: {}}}")},
			Want: corev1.PodSpec{NodeSelector: map[string]string{"pool": "base"}}},
	}, func(t *testing.T, tc expect.Row[[]RuntimePatch, corev1.PodSpec]) {
		js := render(t, job, torchRuntime, tc.In...)
		got := replicatedJob(t, js, "node").Template.Spec.Template.Spec
		byName := cmpopts.SortSlices(func(a, b corev1.PodSchedulingGate) bool { return a.Name < b.Name })
		expect.Same(t, "Unexpected pod spec", tc.Want, got, byName, cmpopts.IgnoreFields(corev1.PodSpec{}, "Containers"))
	})
}

func TestRenderRefusesAnEntryItCannotRead(t *testing.T) {
	_, err := testRenderer(t).Render(t.Context(), jobWithTrainer(nil), expect.FromYAML[*trainer.TrainingRuntimeSpec](t, torchRuntime),
		[]RuntimePatch{expect.FromYAML[RuntimePatch](t, "{manager: a.io/x, trainingRuntimeSpec: 7}")})
	expect.ErrorWith(t, err, `"a.io/x"`)
}

func TestRenderFailsWithoutPanicOnARuntimeWithoutJobs(t *testing.T) {
	js, err := testRenderer(t).Render(t.Context(), jobWithTrainer(nil), &trainer.TrainingRuntimeSpec{}, nil)
	expect.That(t, err != nil || len(js.Spec.ReplicatedJobs) == 0, "Replicated jobs out of nothing: %v", js)
}

// Runtimes come from a cache, and one TrainJob is rendered several times in one
// reconcile: rendering must not leave a trace in either.
func TestRenderIsPure(t *testing.T) {
	torchtune := strings.Replace(torchRuntime, "image: torch\n", "image: torch\n                command: [tune, run]\n", 1)
	eightGPUs := &corev1.ResourceRequirements{Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")}}
	type row struct {
		runtime string
		trainer *trainer.Trainer
	}
	expect.Rows(t, map[string]row{
		"torch": {runtime: torchRuntime,
			trainer: &trainer.Trainer{NumNodes: ptr.To[int32](3), Env: []corev1.EnvVar{{Name: "E", Value: "v"}}, ResourcesPerNode: eightGPUs}},
		"torchtune, whose command Trainer completes": {runtime: torchtune,
			trainer: &trainer.Trainer{Command: []string{"tune", "run"}, NumNodes: ptr.To[int32](1), ResourcesPerNode: eightGPUs}},
		"MPI, whose policy Trainer completes": {runtime: mpiRuntime, trainer: &trainer.Trainer{NumNodes: ptr.To[int32](3), ResourcesPerNode: eightGPUs}},
	}, func(t *testing.T, tc row) {
		renderer := testRenderer(t)
		job := jobWithTrainer(tc.trainer.DeepCopy())
		job.Spec.RuntimeRef.Name = "torchtune-llama3.2-1b"
		spec, patches := expect.FromYAML[*trainer.TrainingRuntimeSpec](t, tc.runtime), []RuntimePatch{
			podSpecPatch(t, "a.io/x", "node", "{nodeSelector: {a: a}}"), podSpecPatch(t, "b.io/x", "node", "{nodeSelector: {b: b}}"),
		}
		wantJob, wantSpec := job.DeepCopy(), spec.DeepCopy()

		first := expect.Must(renderer.Render(t.Context(), job, spec, patches))(t)
		for range 2 {
			expect.Same(t, "A later rendering differs from the first", first, expect.Must(renderer.Render(t.Context(), job, spec, patches))(t))
		}
		expect.Same(t, "Rendering changed the TrainJob", wantJob, job)
		expect.Same(t, "Rendering changed the runtime", wantSpec, spec)
		// The result is the caller's to change.
		first.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Containers[0].Name = "changed"
		expect.Same(t, "Changing the result changed the runtime", wantSpec, spec)
	})
}

// trainerDir is the source of the Trainer that this module is built with.
func trainerDir(t *testing.T) string {
	t.Helper()
	dir := expect.Must(exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/kubeflow/trainer/v2").Output())(t)
	return strings.TrimSpace(string(dir))
}

// shippedRuntimes reads the runtimes that Trainer installs, of the very version that
// this module is built with.
func shippedRuntimes(t *testing.T) map[string]*trainer.TrainingRuntime {
	t.Helper()
	runtimes := map[string]*trainer.TrainingRuntime{}
	for _, pattern := range []string{"*.yaml", "*/*.yaml", "*/*/*.yaml"} {
		for _, path := range expect.Must(filepath.Glob(filepath.Join(trainerDir(t), "manifests", "base", "runtimes", pattern)))(t) {
			rt := &trainer.TrainingRuntime{}
			expect.NoError(t, yaml.Unmarshal(expect.Must(os.ReadFile(path))(t), rt))
			if rt.Kind == trainer.ClusterTrainingRuntimeKind {
				rt.Kind, rt.Namespace = trainer.TrainingRuntimeKind, "ns"
				runtimes[rt.Name] = rt
			}
		}
	}
	expect.Need(t, len(runtimes) > 5, "Found %d runtimes", len(runtimes))
	return runtimes
}

// renderedByTrainer returns the JobSet that Trainer's controller would apply.
func renderedByTrainer(t *testing.T, rt *trainer.TrainingRuntime, job *trainer.TrainJob) *jobsetapi.JobSet {
	t.Helper()
	cl := kit.Fake(kit.Scheme(trainer.AddToScheme), rt.DeepCopy()).WithInterceptorFuncs(interceptor.Funcs{
		// The snapshot; the fake client would need its schema.
		Apply: func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
			return nil
		},
	}).Build()
	trainerRuntime := expect.Must(trainercore.NewTrainingRuntime(t.Context(), cl, noIndex{}, nil))(t)
	objs := expect.Must(trainerRuntime.NewObjects(t.Context(), job))(t)
	for _, obj := range objs {
		if apply, ok := obj.(*jobsetapply.JobSetApplyConfiguration); ok {
			return expect.Must(toJobSet(apply))(t)
		}
	}
	t.Fatal("Trainer made no JobSet")
	return nil
}

func TestRenderDoesWhatTrainerDoesWithTheRuntimesItShips(t *testing.T) {
	trainers := map[string]*trainer.Trainer{
		"as it is": nil,
		"with nodes, resources, a command": {NumNodes: ptr.To[int32](3), Command: []string{"python"}, Args: []string{"train.py"}, Image: ptr.To("mine"),
			Env: []corev1.EnvVar{{Name: "E", Value: "v"}},
			ResourcesPerNode: &corev1.ResourceRequirements{
				Requests: corev1.ResourceList{"cpu": resource.MustParse("2")}, Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")},
			}},
		"with torchtune's command": {Command: []string{"tune", "run"}, Args: []string{"epochs=1"}},
	}
	patches := []RuntimePatch{}
	for name, rt := range shippedRuntimes(t) {
		patches = append(patches[:0], podSpecPatch(t, "a.io/x", rt.Spec.Template.Spec.ReplicatedJobs[0].Name, "{nodeSelector: {a: a}, tolerations: [{key: a}]}"))
		for variant, tr := range trainers {
			t.Run(name+" "+variant, func(t *testing.T) {
				job := jobWithTrainer(tr)
				job.Spec.RuntimeRef = trainer.RuntimeRef{Name: name, Kind: ptr.To(trainer.TrainingRuntimeKind)}
				job.Spec.RuntimePatches = patches
				job.Spec.Initializer = &trainer.Initializer{
					Dataset: &trainer.DatasetInitializer{StorageUri: ptr.To("hf://data")}, Model: &trainer.ModelInitializer{StorageUri: ptr.To("hf://model")},
				}
				got := expect.Must(testRenderer(t).Render(t.Context(), job, &rt.Spec, patches))(t)
				typed := expect.Must(job.typed(patches))(t)
				want := renderedByTrainer(t, rt, typed.DeepCopy())
				// Trainer runs its plugins in the order of a Go map, another one in every
				// process, and for XGBoost two of them add variables.
				anyOrder := cmpopts.SortSlices(func(a, b corev1.EnvVar) bool { return a.Name < b.Name })
				expect.Same(t, "Not the JobSet that Trainer makes", want, got, anyOrder)
			})
		}
	}
}

// Trainer writes the name of each into a ConfigMap.
func TestDescribeTakesSoManyPods(t *testing.T) {
	mpi := expect.FromYAML[*trainer.TrainingRuntimeSpec](t, mpiRuntime)
	for nodes, want := range map[int32]error{maxPods: nil, maxPods + 1: ErrTooManyPods} {
		_, err := testRenderer(t).Describe(t.Context(), jobWithTrainer(&trainer.Trainer{NumNodes: ptr.To(nodes)}), mpi, nil)
		expect.That(t, errors.Is(err, want), "Describe of %d nodes returned %v", nodes, err)
	}
	torch := expect.FromYAML[*trainer.TrainingRuntimeSpec](t, torchRuntime)
	torch.Template.Spec.ReplicatedJobs[0].Replicas = maxPods
	_, err := testRenderer(t).Describe(t.Context(), jobWithTrainer(&trainer.Trainer{NumNodes: ptr.To[int32](2)}), torch, nil)
	expect.That(t, errors.Is(err, ErrTooManyPods), "Describe of replicas returned %v", err)
}

// Trainer 2.3.0 panics on both.
func TestDescribeNamesThePluginThatPanics(t *testing.T) {
	flux := expect.FromYAML[*trainer.TrainingRuntimeSpec](t, strings.Replace(torchRuntime, "torch: {}", "flux: {numProcPerNode: 1}", 1))
	expect.Rows(t, map[string]*trainer.Trainer{
		"on the policy":                nil,
		"on what goes with the JobSet": {},
	}, func(t *testing.T, tr *trainer.Trainer) {
		_, err := testRenderer(t).Describe(t.Context(), jobWithTrainer(tr), flux, nil)
		expect.That(t, errors.Is(err, ErrPluginPanics) && strings.Contains(err.Error(), "flux"), "Describe returned %v", err)
	})
	_, err := testRenderer(t).Describe(t.Context(), jobWithTrainer(&trainer.Trainer{NumNodes: ptr.To[int32](2)}), flux, nil)
	expect.NoError(t, err)
}
