// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	intree "sigs.k8s.io/kueue/pkg/controller/jobs/trainjob"
	"sigs.k8s.io/yaml"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/testenv"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobclient"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/podsets"
	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
)

// The benchmarks compare this integration with Kueue's in-tree one on the same TrainJob:
// one node of runtime torch-distributed, in a queue. Reads come from memory, as they do
// from a manager's caches. What goes to the API server is answered at once, which flatters
// the in-tree integration most; with KUBECONFIG set to that of a cluster with Trainer and
// Kueue, more benchmarks ask the API server there.

func BenchmarkPodSets(b *testing.B) {
	for _, server := range apiServers(b) {
		b.Run("in-tree/"+server.name, func(b *testing.B) {
			s := newInTreeStore(b, server)
			job := intree.NewJob()
			s.read(b, job.Object())
			for b.Loop() {
				podSets, err := job.PodSets(b.Context(), s)
				check(b, err, len(podSets) == 1)
			}
		})
		b.Run("kueue-trainer, first time/"+server.name, func(b *testing.B) {
			r, s := newBenchReconciler(b, server)
			j := &job{}
			s.read(b, &j.TrainJob)
			for b.Loop() {
				j.deps, j.described = fresh(r.deps, s, server), nil
				podSets, err := j.PodSets(b.Context(), s)
				check(b, err, len(podSets) == 1)
			}
		})
	}
	b.Run("kueue-trainer, remembered", func(b *testing.B) {
		r, s := newBenchReconciler(b, apiServers(b)[0])
		j := &job{deps: r.deps}
		s.read(b, &j.TrainJob)
		for b.Loop() {
			j.described = nil
			podSets, err := j.PodSets(b.Context(), s)
			check(b, err, len(podSets) == 1)
		}
	})
}

// BenchmarkReconcile looks at a TrainJob that waits, and at one that runs; there is
// nothing to do, and a write fails the benchmark.
func BenchmarkReconcile(b *testing.B) {
	for _, state := range []string{"waiting", "running"} {
		set := func(testing.TB, *store) {}
		if state == "running" {
			set = startJob
		}
		for _, server := range apiServers(b) {
			b.Run("in-tree/"+state+"/"+server.name, func(b *testing.B) {
				s := newInTreeStore(b, server)
				framework, err := intree.NewReconciler(b.Context(), s, noIndex{}, &events.FakeRecorder{})
				check(b, err, true)
				reconcileNothing(b, s, set, framework.Reconcile)
			})
		}
		b.Run("kueue-trainer/"+state, func(b *testing.B) {
			r, s := newBenchReconciler(b, apiServers(b)[0])
			reconcileNothing(b, s, set, r.Reconcile)
		})
	}
}

// BenchmarkMeasure records all that is recorded of one run of a TrainJob, from its start to its stop:
// what metrics add to the reconciles that start, watch and stop it.
func BenchmarkMeasure(b *testing.B) {
	r, s := newBenchReconciler(b, apiServers(b)[0])
	_, err := r.Reconcile(b.Context(), ctrl.Request{NamespacedName: benchKey})
	check(b, err, len(s.workloads) == 1)
	startJob(b, s)
	j, err := r.deps.observe(b.Context(), benchKey)
	check(b, err, true)
	for b.Loop() {
		measureStart(j)
		measureReady(j, func() bool { return true })
		measureStop(j, metrics.StopByUser)
	}
}

func reconcileNothing(b *testing.B, s *store, set func(testing.TB, *store), reconcile func(context.Context, ctrl.Request) (ctrl.Result, error)) {
	b.Helper()
	req := ctrl.Request{NamespacedName: benchKey}
	_, err := reconcile(b.Context(), req)
	check(b, err, len(s.workloads) == 1)
	set(b, s)
	s.readOnly = true
	for b.Loop() {
		_, err := reconcile(b.Context(), req)
		check(b, err, true)
	}
}

func check(tb testing.TB, err error, ok bool) {
	if err != nil || !ok {
		tb.Helper()
		tb.Fatalf("unexpected result; error: %v", err)
	}
}

var benchKey = client.ObjectKey{Namespace: "default", Name: "bench"}

const benchJob = `{"apiVersion":"trainer.kubeflow.org/v1alpha1","kind":"TrainJob",
"metadata":{"namespace":"default","name":"bench","uid":"4ef47cd5-7f0e-43a4-ae39-58ef7f7e4d8c","generation":1,"resourceVersion":"1","labels":{"kueue.x-k8s.io/queue-name":"bench"}},
"spec":{"runtimeRef":{"apiGroup":"trainer.kubeflow.org","kind":"ClusterTrainingRuntime","name":"torch-distributed"},"suspend":true,
"trainer":{"numNodes":2,"resourcesPerNode":{"limits":{"nvidia.com/gpu":"8"},"requests":{"nvidia.com/gpu":"8"}}},"runtimePatches":[` + inttest.Gate + `]}}`

// apiServer is what answers what a manager's caches do not.
type apiServer struct {
	name string
	// client asks an API server; nil answers at once.
	client client.Client
}

func apiServers(tb testing.TB) []apiServer {
	tb.Helper()
	all := []apiServer{{name: "API server answers at once"}}
	kubeconfig := os.Getenv("KUBECONFIG")
	if kubeconfig == "" {
		return all
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	check(tb, err, true)
	// The limit of both integrations would be what is measured.
	config.QPS = -1
	c, err := client.New(config, client.Options{Scheme: inttest.Scheme})
	check(tb, err, true)
	return append(all, apiServer{name: "local API server", client: c})
}

// store is a manager's cache with one TrainJob, and the API server behind it.
type store struct {
	client.Client
	server    apiServer
	scheme    *runtime.Scheme
	objects   map[reflect.Type]client.Object
	workloads []kueue.Workload
	defaults  *podset.Defaults
	readOnly  bool
}

var errNothingToDo = errors.New("there is nothing to do, and it was written")

func newStore(tb testing.TB, server apiServer, scheme *runtime.Scheme, job client.Object) *store {
	tb.Helper()
	rt := moduleYAML(tb, "github.com/kubeflow/trainer/v2", "manifests/base/runtimes/torch_distributed.yaml", &trainer.ClusterTrainingRuntime{})
	check(tb, json.Unmarshal([]byte(benchJob), job), true)
	s := &store{server: server, scheme: scheme, defaults: servedDefaults(tb), objects: map[reflect.Type]client.Object{}}
	if server.client != nil {
		job.SetUID(freeze(tb, server.client))
	}
	text, err := yaml.Marshal(rt)
	check(tb, err, true)
	for _, obj := range []client.Object{job, rt, snapshotFor(job, string(text)), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: benchKey.Namespace}}} {
		s.objects[reflect.TypeOf(obj)] = obj
	}
	return s
}

// snapshotKey is where Trainer freezes the runtime of the job.
var snapshotKey = client.ObjectKey{Namespace: benchKey.Namespace, Name: benchKey.Name + "-runtime-snapshot"}

// freeze makes the job in a cluster, in no queue, and returns its UID when the Trainer there
// has frozen its runtime.
func freeze(tb testing.TB, c client.Client) types.UID {
	tb.Helper()
	job := &trainjob.TrainJob{}
	check(tb, json.Unmarshal([]byte(benchJob), job), true)
	job.UID, job.ResourceVersion, job.Labels, job.Spec.RuntimePatches = "", "", nil, nil
	check(tb, c.Create(tb.Context(), job), true)
	tb.Cleanup(func() { check(tb, c.Delete(context.Background(), job), true) })
	check(tb, wait.PollUntilContextTimeout(tb.Context(), 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		var cm corev1.ConfigMap
		err := c.Get(ctx, snapshotKey, &cm)
		return err == nil && metav1.IsControlledBy(&cm, job), client.IgnoreNotFound(err)
	}), true)
	return job.UID
}

func newInTreeStore(tb testing.TB, server apiServer) *store {
	tb.Helper()
	s := newStore(tb, server, kit.Scheme(trainer.AddToScheme), &trainer.TrainJob{})
	// It also sets Trainer's library up, which is the process's.
	_, err := intree.NewReconciler(tb.Context(), s, noIndex{}, &events.FakeRecorder{})
	check(tb, err, true)
	return s
}

func newBenchReconciler(tb testing.TB, server apiServer) (*reconciler, *store) {
	tb.Helper()
	s := newStore(tb, server, inttest.Scheme, &trainjob.TrainJob{})
	deps := fresh(dependenciesOn(tb, s, testenv.Describer(tb, s)), s, server)
	deps.client = jobclient.New(s, s, deps.trainer, deps.expectations, deps.metrics)
	deps.waitForJobSet = 0
	// There is no Trainer that would make a JobSet, and the wait for it is over.
	deps.records.of(benchKey, s.objects[reflect.TypeFor[*trainjob.TrainJob]()].GetUID()).waiting.began = time.Unix(0, 0)
	return &reconciler{deps: deps}, s
}

// fresh returns the dependencies of a process that has seen no TrainJob yet.
func fresh(deps *dependencies, s *store, server apiServer) *dependencies {
	out := *deps
	describer := *deps.Describer
	out.Describer = &describer
	var live client.Reader = s
	if server.client != nil {
		live = server.client
	}
	out.Runtimes = trainjob.NewRuntimes(s, live)
	out.Runtimes.Looked = trainerLooked(s)
	out.Defaults = podsets.FixedDefaults(s.defaults)
	out.Remembered = podsets.NewRemembered()
	return &out
}

func moduleYAML[T any](tb testing.TB, module, file string, into T) T {
	tb.Helper()
	dir, err := exec.CommandContext(tb.Context(), "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	check(tb, err, true)
	data, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), file))
	check(tb, err, true)
	check(tb, yaml.Unmarshal(data, into), true)
	return into
}

// startJob starts the job, as far as its integration knows.
func startJob(tb testing.TB, s *store) {
	inttest.Admitted(&s.workloads[0])
	s.workloads[0].Status.Admission = &kueue.Admission{ClusterQueue: "bench"}
	for _, obj := range s.objects {
		switch job := obj.(type) {
		case *trainer.TrainJob:
			job.Spec.Suspend = ptr.To(false)
		case *trainjob.TrainJob:
			job.Spec.Suspend = ptr.To(false)
			place(tb, job, patch.Placement{Name: "node"})
		}
	}
}

func (s *store) read(tb testing.TB, into client.Object) {
	tb.Helper()
	check(tb, s.Get(tb.Context(), benchKey, into), true)
}

// Get copies as an informer's cache does.
func (s *store) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	obj, ok := s.objects[reflect.TypeOf(into)]
	if !ok || obj.GetName() != key.Name {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	reflect.ValueOf(into).Elem().Set(reflect.ValueOf(obj.DeepCopyObject()).Elem())
	return nil
}

func (s *store) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	switch list := into.(type) {
	case *kueue.WorkloadList:
		list.Items = (&kueue.WorkloadList{Items: s.workloads}).DeepCopy().Items
	case *batchv1.JobList, *schedulingv1.PriorityClassList, *eventsv1.EventList:
	default:
		return apierrors.NewNotFound(schema.GroupResource{}, reflect.TypeOf(into).String())
	}
	return nil
}

// Create stores, or for a dry run gives back what it would store.
func (s *store) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	wl := obj.(*kueue.Workload)
	if dryRun := len((&client.CreateOptions{}).ApplyOptions(opts).DryRun) > 0; dryRun && s.server.client != nil {
		return s.server.client.Create(ctx, obj, opts...)
	} else if !dryRun && s.readOnly {
		return errNothingToDo
	} else if !dryRun {
		defer func() { s.workloads = append(s.workloads, *wl.DeepCopy()) }()
	}
	// The least that a request costs its client: the object is encoded, the answer decoded.
	podSets, err := s.defaults.Apply(wl.Spec.PodSets)
	if err != nil {
		return err
	}
	wl.Spec.PodSets = podSets
	return nil
}

func (s *store) Update(context.Context, client.Object, ...client.UpdateOption) error {
	return errNothingToDo
}

func (s *store) Patch(context.Context, client.Object, client.Patch, ...client.PatchOption) error {
	return errNothingToDo
}

func (s *store) Scheme() *runtime.Scheme { return s.scheme }

func (s *store) RESTMapper() apimeta.RESTMapper { return apimeta.NewDefaultRESTMapper(nil) }

type noIndex struct{}

func (noIndex) IndexField(context.Context, client.Object, string, client.IndexerFunc) error {
	return nil
}
