// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// withNodes returns a runtime spec that its number of nodes tells from others.
func withNodes(n int32) trainer.TrainingRuntimeSpec {
	return trainer.TrainingRuntimeSpec{MLPolicy: &trainer.MLPolicy{NumNodes: ptr.To(n)}}
}

func clusterRuntime(name string, nodes int32) client.Object {
	return &trainer.ClusterTrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: withNodes(nodes)}
}

func namespacedRuntime(namespace, name string, nodes int32) client.Object {
	return &trainer.TrainingRuntime{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: withNodes(nodes)}
}

// snapshotOf is the ConfigMap of a job with that UID, controlled by nobody where it is nil.
func snapshotOf(owner *types.UID, text string) *corev1.ConfigMap {
	cm := kit.ConfigMap("ns", "job-runtime-snapshot", "runtime", text)
	if owner != nil {
		cm.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: trainer.GroupVersion.String(), Kind: "TrainJob", Name: "job", UID: *owner, Controller: ptr.To(true),
		}}
	}
	return cm
}

func snapshotYAML(kind string, nodes int) string {
	return fmt.Sprintf("apiVersion: trainer.kubeflow.org/v1alpha1\nkind: %s\nmetadata:\n  name: torch\nspec:\n  mlPolicy:\n    numNodes: %d\n", kind, nodes)
}

// frozen is a snapshot with 8 nodes.
func frozen(owner *types.UID) *corev1.ConfigMap {
	return snapshotOf(owner, snapshotYAML("ClusterTrainingRuntime", 8))
}

var testUID = ptr.To[types.UID]("uid")

func jobOf(uid types.UID, runtimeKind *string) *TrainJob {
	return &TrainJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job", UID: uid},
		Spec:       Spec{RuntimeRef: trainer.RuntimeRef{Name: "torch", Kind: runtimeKind}},
	}
}

// server has those objects, and perhaps a snapshot.
func server(t *testing.T, snapshot *corev1.ConfigMap, objs ...client.Object) client.WithWatch {
	t.Helper()
	if snapshot != nil {
		objs = append(objs, snapshot)
	}
	return kit.Fake(testScheme, objs...).Build()
}

func TestRuntimesFor(t *testing.T) {
	unavailable := errors.New("the API server is away")
	torch := []client.Object{clusterRuntime("torch", 1)}
	withoutKey := frozen(testUID)
	withoutKey.Data = map[string]string{"other": "text"}
	type row struct {
		// job is one that says no kind of runtime, where it is nil.
		job                  *TrainJob
		cluster              []client.Object
		snapshot             *corev1.ConfigMap
		snapshotErr, wantErr error
		noLiveReader         bool
		wantNodes            int32
		wantInErr            []string
	}
	expect.Rows(t, map[string]row{
		"the live cluster runtime before there is a snapshot": {job: jobOf("uid", ptr.To("ClusterTrainingRuntime")),
			cluster: []client.Object{clusterRuntime("torch", 1), namespacedRuntime("ns", "torch", 2)}, wantNodes: 1},
		"no kind means a cluster runtime": {cluster: []client.Object{clusterRuntime("torch", 1), namespacedRuntime("ns", "torch", 2)}, wantNodes: 1},
		"a namespaced runtime, of the job's own namespace": {job: jobOf("uid", ptr.To("TrainingRuntime")),
			cluster: []client.Object{clusterRuntime("torch", 1), namespacedRuntime("other", "torch", 3), namespacedRuntime("ns", "torch", 2)}, wantNodes: 2},
		"the snapshot wins over the live runtime":      {cluster: torch, snapshot: frozen(testUID), wantNodes: 8},
		"the snapshot stands in for a deleted runtime": {job: jobOf("uid", ptr.To("TrainingRuntime")), snapshot: snapshotOf(testUID, snapshotYAML("TrainingRuntime", 8)), wantNodes: 8},
		"a snapshot of another UID is ignored":         {cluster: torch, snapshot: frozen(ptr.To[types.UID]("former")), wantNodes: 1},
		"a ConfigMap that nobody controls is ignored":  {cluster: torch, snapshot: frozen(nil), wantNodes: 1},
		"a job without UID has no snapshot":            {job: jobOf("", nil), cluster: torch, snapshot: frozen(ptr.To[types.UID]("")), wantNodes: 1},
		"without a live reader there are no snapshots": {cluster: torch, snapshot: frozen(testUID), noLiveReader: true, wantNodes: 1},
		"a missing cluster runtime": {cluster: []client.Object{namespacedRuntime("ns", "torch", 2)}, wantErr: ErrRuntimeNotFound,
			wantInErr: []string{"ClusterTrainingRuntime", `"torch"`, "create it", "spec.runtimeRef"}},
		"a missing namespaced runtime": {job: jobOf("uid", ptr.To("TrainingRuntime")), cluster: []client.Object{clusterRuntime("torch", 1), namespacedRuntime("other", "torch", 3)},
			wantErr: ErrRuntimeNotFound, wantInErr: []string{"TrainingRuntime", `"torch"`, "namespace ns", "create it"}},
		"a kind that is no runtime": {job: jobOf("uid", ptr.To("Pod")), wantErr: ErrRuntimeUnsupported,
			wantInErr: []string{`"Pod"`, "spec.runtimeRef.kind", "ClusterTrainingRuntime", "TrainingRuntime"}},
		"a snapshot that is no YAML": {cluster: torch, snapshot: snapshotOf(testUID, "spec: ["), wantErr: ErrSnapshotUnreadable,
			wantInErr: []string{"ns/job-runtime-snapshot", `"runtime"`, "delete it"}},
		"a snapshot that is no runtime": {cluster: torch, snapshot: snapshotOf(testUID, "spec: text"), wantErr: ErrSnapshotUnreadable,
			wantInErr: []string{"ns/job-runtime-snapshot", `"runtime"`, "delete it"}},
		"a snapshot without its key": {cluster: torch, snapshot: withoutKey, wantErr: ErrSnapshotUnreadable,
			wantInErr: []string{"ns/job-runtime-snapshot", `"runtime"`, "delete it"}},
		"a snapshot that cannot be read is not a missing one": {cluster: torch, snapshotErr: unavailable, wantErr: unavailable},
	}, func(t *testing.T, tc row) {
		live := kit.Gets(server(t, tc.snapshot), func(client.Object, client.ObjectKey) error { return tc.snapshotErr })
		runtimes := NewRuntimes(server(t, nil, tc.cluster...), live)
		if tc.noLiveReader {
			runtimes.Live = nil
		}

		got, err := runtimes.For(t.Context(), cmp.Or(tc.job, jobOf("uid", nil)))
		if tc.wantErr != nil {
			expect.ErrorWith(t, err, tc.wantInErr...)
			expect.That(t, errors.Is(err, tc.wantErr), "Error %q does not wrap %q", err, tc.wantErr)
			return
		}
		expect.NoError(t, err)
		expect.Same(t, "Unexpected runtime", withNodes(tc.wantNodes), *got)
	})
}

func TestRuntimesForRemembersSnapshotsOnly(t *testing.T) {
	expect.Rows(t, map[string]expect.Row[*corev1.ConfigMap, int]{
		"a snapshot is read once": {In: frozen(testUID), Want: 1},
		"a missing one is looked for again, since Trainer may make it any moment": {Want: 3},
		"one of another UID is looked for again":                                  {In: frozen(ptr.To[types.UID]("former")), Want: 3},
	}, func(t *testing.T, tc expect.Row[*corev1.ConfigMap, int]) {
		reads := 0
		live := kit.Gets(server(t, tc.In), func(client.Object, client.ObjectKey) error { reads++; return nil })
		runtimes := NewRuntimes(server(t, nil, clusterRuntime("torch", 1)), live)
		for range 2 {
			expect.Must(runtimes.For(t.Context(), jobOf("uid", nil)))(t)
		}
		expect.Same(t, "Unexpected number of live reads for two calls", tc.Want, reads)
	})
}

// While Trainer is behind, there is nothing to look for; what it froze then is found at once.
func TestRuntimesAwaitTrainer(t *testing.T) {
	reads, seen := 0, false
	live := kit.Gets(server(t, nil), func(client.Object, client.ObjectKey) error { reads++; return nil })
	runtimes := NewRuntimes(server(t, nil, clusterRuntime("torch", 1)), live)
	runtimes.Looked = func(context.Context, *TrainJob) bool { return seen }
	nodes := func() int32 {
		t.Helper()
		return *expect.Must(runtimes.For(t.Context(), jobOf("uid", nil)))(t).MLPolicy.NumNodes
	}
	first, second := nodes(), nodes()
	expect.That(t, first == 1 && second == 1 && reads == 2,
		"%d and %d nodes after %d live reads, want the runtime's 1, and one read of the watch cache and the storage", first, second, reads)
	expect.NoError(t, live.Create(t.Context(), frozen(testUID)))
	seen = true
	expect.Same(t, "Not the snapshot's nodes once Trainer has looked", 8, nodes())
}

// People create a runtime and a TrainJob in one go.
func TestRuntimeThatTheCacheHasNotHeardOf(t *testing.T) {
	runtimes := NewRuntimes(server(t, nil), server(t, nil, clusterRuntime("torch", 1)))
	expect.Same(t, "Unexpected runtime", withNodes(1), *expect.Must(runtimes.For(t.Context(), jobOf("uid", nil)))(t))
}

// Trainer 2.3 merges the resources that 2.2 replaces, and heeds the snapshot.
func TestRuntimeIsAnotherForAnotherTrainer(t *testing.T) {
	runtimes := NewRuntimes(server(t, nil, clusterRuntime("torch", 1)), server(t, nil))
	of := func(served TrainerVersion) Runtime {
		t.Helper()
		return expect.Must(runtimes.As(served).Of(t.Context(), jobWithTrainer(&trainer.Trainer{ResourcesPerNode: ptr.To(kit.GPUResources("8"))})))(t)
	}
	expect.That(t, of(Trainer22).Version != of(Trainer23).Version, "What is remembered of one is taken for the other's")
	runtimes.Live = server(t, frozenAs("first", 8))
	taken := expect.Must(runtimes.As(Trainer22).SnapshotTaken(t.Context(), jobOf("uid", nil)))(t)
	expect.That(t, taken.IsZero(), "Trainer 2.2 took a snapshot at %s", taken)
}

// frozenAs returns a snapshot of the job that is told from others by its UID.
func frozenAs(uid types.UID, nodes int) *corev1.ConfigMap {
	cm := snapshotOf(testUID, snapshotYAML("ClusterTrainingRuntime", nodes))
	cm.UID, cm.CreationTimestamp = uid, metav1.Now()
	return cm
}

// A watch cache that is behind must not describe a job by another runtime than Trainer's.
func TestRuntimesAreNotMisledByAWatchCacheThatIsBehind(t *testing.T) {
	type row struct {
		cached, stored *corev1.ConfigMap
		confirmed      bool
		wantNodes      int32
	}
	expect.Rows(t, map[string]row{
		"it has not heard of the snapshot":                  {stored: frozenAs("second", 8), wantNodes: 8},
		"it has the replaced one, and the storage is asked": {cached: frozenAs("first", 2), stored: frozenAs("second", 8), confirmed: true, wantNodes: 8},
		"it has a deleted one, and the storage is asked":    {cached: frozenAs("first", 2), confirmed: true, wantNodes: 1},
	}, func(t *testing.T, tc row) {
		cached := server(t, tc.cached)
		live := interceptor.NewClient(server(t, tc.stored), interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
				if (&client.GetOptions{}).ApplyOptions(opts).AsGetOptions().ResourceVersion == "0" {
					c = cached
				}
				return c.Get(ctx, key, obj)
			},
		})
		runtimes := NewRuntimes(server(t, nil, clusterRuntime("torch", 1)), live)
		if tc.confirmed {
			expect.Must(runtimes.SnapshotTaken(t.Context(), jobOf("uid", nil)))(t)
		}
		expect.Same(t, "Unexpected runtime", withNodes(tc.wantNodes), *expect.Must(runtimes.For(t.Context(), jobOf("uid", nil)))(t))
	})
}

// Such names come to the webhook before the API server looks at them.
func TestRuntimesOfNamesThatNoObjectCanHave(t *testing.T) {
	live := kit.Gets(server(t, nil), func(of client.Object, _ client.ObjectKey) error {
		if _, snapshot := of.(*corev1.ConfigMap); snapshot {
			return nil
		}
		return errors.New("invalid resource name")
	})
	for _, name := range []string{"", "nvidia.com/gpu"} {
		job := jobOf("uid", nil)
		job.Spec.RuntimeRef.Name = name
		_, err := NewRuntimes(server(t, nil), live).For(t.Context(), job)
		expect.That(t, errors.Is(err, ErrRuntimeNotFound), "%q: %v", name, err)
	}
}

func TestRuntimesFollowReplacedSnapshot(t *testing.T) {
	type row struct {
		second      *corev1.ConfigMap
		wantNodes   int32
		wantVersion bool
	}
	expect.Rows(t, map[string]row{
		"the same is still there":             {second: frozenAs("first", 1), wantNodes: 1, wantVersion: true},
		"Trainer froze the edited runtime":    {second: frozenAs("second", 8), wantNodes: 8},
		"it is gone, and the runtime renders": {wantNodes: 4},
	}, func(t *testing.T, tc row) {
		runtimes := NewRuntimes(server(t, nil, clusterRuntime("torch", 4)), server(t, frozenAs("first", 1)))
		before := expect.Must(runtimes.Of(t.Context(), jobOf("uid", nil)))(t)
		runtimes.Live = server(t, tc.second)
		taken, err := runtimes.SnapshotTaken(t.Context(), jobOf("uid", nil))
		expect.That(t, err == nil && taken.IsZero() == (tc.second == nil), "SnapshotTaken returned %s, %v", taken, err)
		after := expect.Must(runtimes.Of(t.Context(), jobOf("uid", nil)))(t)
		got := *after.Spec.MLPolicy.NumNodes
		expect.That(t, got == tc.wantNodes && (before.Version == after.Version) == tc.wantVersion,
			"%d nodes in version %s after %s, want %d", got, after.Version, before.Version, tc.wantNodes)
	})
}

func TestRuntimesForTellsJobsOfOneNameApart(t *testing.T) {
	runtimes := NewRuntimes(server(t, nil, clusterRuntime("torch", 1)), server(t, frozen(ptr.To[types.UID]("first"))))
	for uid, wantNodes := range map[types.UID]int32{"first": 8, "second": 1} {
		got := expect.Must(runtimes.For(t.Context(), jobOf(uid, nil)))(t)
		expect.Same(t, "Unexpected runtime of the job with UID "+string(uid), withNodes(wantNodes), *got)
	}
}
