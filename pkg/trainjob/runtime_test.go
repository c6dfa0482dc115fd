// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
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
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

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

func snapshotYAML(kind string, nodes int) string {
	return fmt.Sprintf("apiVersion: trainer.kubeflow.org/v1alpha1\nkind: %s\nmetadata:\n  name: torch\nspec:\n  mlPolicy:\n    numNodes: %d\n", kind, nodes)
}

func snapshotOf(owner types.UID, data map[string]string) *corev1.ConfigMap {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job-runtime-snapshot"}, Data: data}
	if owner == "" {
		return cm
	}
	return controlled(cm, owner)
}

func controlled(cm *corev1.ConfigMap, owner types.UID) *corev1.ConfigMap {
	cm.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: trainer.GroupVersion.String(), Kind: "TrainJob", Name: "job", UID: owner, Controller: ptr.To(true),
	}}
	return cm
}

func jobOf(uid types.UID, runtimeKind *string) *TrainJob {
	return &TrainJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job", UID: uid},
		Spec:       Spec{RuntimeRef: trainer.RuntimeRef{Name: "torch", Kind: runtimeKind}},
	}
}

func TestRuntimesFor(t *testing.T) {
	unavailable := errors.New("the API server is away")
	cases := map[string]struct {
		job          *TrainJob
		cluster      []client.Object
		configMap    *corev1.ConfigMap
		snapshotErr  error
		noLiveReader bool
		wantNodes    int32
		wantErr      error
		wantInErr    []string
	}{
		"the live cluster runtime before there is a snapshot": {
			job:       jobOf("uid", ptr.To("ClusterTrainingRuntime")),
			cluster:   []client.Object{clusterRuntime("torch", 1), namespacedRuntime("ns", "torch", 2)},
			wantNodes: 1,
		},
		"no kind means a cluster runtime": {
			job:       jobOf("uid", nil),
			cluster:   []client.Object{clusterRuntime("torch", 1), namespacedRuntime("ns", "torch", 2)},
			wantNodes: 1,
		},
		"a namespaced runtime, of the job's own namespace": {
			job:       jobOf("uid", ptr.To("TrainingRuntime")),
			cluster:   []client.Object{clusterRuntime("torch", 1), namespacedRuntime("other", "torch", 3), namespacedRuntime("ns", "torch", 2)},
			wantNodes: 2,
		},
		"the snapshot wins over the live runtime": {
			job:       jobOf("uid", nil),
			cluster:   []client.Object{clusterRuntime("torch", 1)},
			configMap: snapshotOf("uid", map[string]string{"runtime": snapshotYAML("ClusterTrainingRuntime", 8)}),
			wantNodes: 8,
		},
		"the snapshot stands in for a deleted runtime": {
			job:       jobOf("uid", ptr.To("TrainingRuntime")),
			configMap: snapshotOf("uid", map[string]string{"runtime": snapshotYAML("TrainingRuntime", 8)}),
			wantNodes: 8,
		},
		"a snapshot of another UID is ignored": {
			job:       jobOf("uid", nil),
			cluster:   []client.Object{clusterRuntime("torch", 1)},
			configMap: snapshotOf("former", map[string]string{"runtime": snapshotYAML("ClusterTrainingRuntime", 8)}),
			wantNodes: 1,
		},
		"a ConfigMap that nobody controls is ignored": {
			job:       jobOf("uid", nil),
			cluster:   []client.Object{clusterRuntime("torch", 1)},
			configMap: snapshotOf("", map[string]string{"runtime": snapshotYAML("ClusterTrainingRuntime", 8)}),
			wantNodes: 1,
		},
		"a job without UID has no snapshot": {
			job:       jobOf("", nil),
			cluster:   []client.Object{clusterRuntime("torch", 1)},
			configMap: controlled(snapshotOf("", map[string]string{"runtime": snapshotYAML("ClusterTrainingRuntime", 8)}), ""),
			wantNodes: 1,
		},
		"without a live reader there are no snapshots": {
			job:          jobOf("uid", nil),
			cluster:      []client.Object{clusterRuntime("torch", 1)},
			configMap:    snapshotOf("uid", map[string]string{"runtime": snapshotYAML("ClusterTrainingRuntime", 8)}),
			noLiveReader: true,
			wantNodes:    1,
		},
		"a missing cluster runtime": {
			job:       jobOf("uid", nil),
			cluster:   []client.Object{namespacedRuntime("ns", "torch", 2)},
			wantErr:   ErrRuntimeNotFound,
			wantInErr: []string{"ClusterTrainingRuntime", `"torch"`, "create it", "spec.runtimeRef"},
		},
		"a missing namespaced runtime": {
			job:       jobOf("uid", ptr.To("TrainingRuntime")),
			cluster:   []client.Object{clusterRuntime("torch", 1), namespacedRuntime("other", "torch", 3)},
			wantErr:   ErrRuntimeNotFound,
			wantInErr: []string{"TrainingRuntime", `"torch"`, "namespace ns", "create it"},
		},
		"a kind that is no runtime": {
			job:       jobOf("uid", ptr.To("Pod")),
			wantErr:   ErrRuntimeUnsupported,
			wantInErr: []string{`"Pod"`, "spec.runtimeRef.kind", "ClusterTrainingRuntime", "TrainingRuntime"},
		},
		"a snapshot that is no YAML": {
			job:       jobOf("uid", nil),
			cluster:   []client.Object{clusterRuntime("torch", 1)},
			configMap: snapshotOf("uid", map[string]string{"runtime": "spec: ["}),
			wantErr:   ErrSnapshotUnreadable,
			wantInErr: []string{"ns/job-runtime-snapshot", `"runtime"`, "delete it"},
		},
		"a snapshot that is no runtime": {
			job:       jobOf("uid", nil),
			cluster:   []client.Object{clusterRuntime("torch", 1)},
			configMap: snapshotOf("uid", map[string]string{"runtime": "spec: text"}),
			wantErr:   ErrSnapshotUnreadable,
			wantInErr: []string{"ns/job-runtime-snapshot", `"runtime"`, "delete it"},
		},
		"a snapshot without its key": {
			job:       jobOf("uid", nil),
			cluster:   []client.Object{clusterRuntime("torch", 1)},
			configMap: snapshotOf("uid", map[string]string{"other": "text"}),
			wantErr:   ErrSnapshotUnreadable,
			wantInErr: []string{"ns/job-runtime-snapshot", `"runtime"`, "delete it"},
		},
		"a snapshot that cannot be read is not a missing one": {
			job:         jobOf("uid", nil),
			cluster:     []client.Object{clusterRuntime("torch", 1)},
			snapshotErr: unavailable,
			wantErr:     unavailable,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			scheme := testScheme(t)
			cached := fake.NewClientBuilder().WithScheme(scheme).WithObjects(tc.cluster...).Build()
			live := fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
					if tc.snapshotErr != nil {
						return tc.snapshotErr
					}
					return c.Get(ctx, key, obj, opts...)
				},
			})
			if tc.configMap != nil {
				live.WithObjects(tc.configMap)
			}
			runtimes := NewRuntimes(cached, live.Build())
			if tc.noLiveReader {
				runtimes.Live = nil
			}

			got, err := runtimes.For(t.Context(), tc.job)
			if tc.wantErr != nil || len(tc.wantInErr) > 0 {
				expect.ErrorWith(t, err, tc.wantInErr...)
				if tc.wantErr != nil && !errors.Is(err, tc.wantErr) {
					t.Errorf("Error %q does not wrap %q", err, tc.wantErr)
				}
				return
			}
			expect.NoError(t, err)
			if nodes := ptr.Deref(ptr.Deref(got.MLPolicy, trainer.MLPolicy{}).NumNodes, 0); nodes != tc.wantNodes {
				t.Errorf("Found the runtime with %d nodes, want the one with %d", nodes, tc.wantNodes)
			}
		})
	}
}

func TestRuntimesForRemembersSnapshotsOnly(t *testing.T) {
	cases := map[string]struct {
		configMap *corev1.ConfigMap
		wantReads int
	}{
		"a snapshot is read once": {
			configMap: snapshotOf("uid", map[string]string{"runtime": snapshotYAML("ClusterTrainingRuntime", 8)}),
			wantReads: 1,
		},
		"a missing one is looked for again, since Trainer may make it any moment": {wantReads: 3},
		"one of another UID is looked for again": {
			configMap: snapshotOf("former", map[string]string{"runtime": snapshotYAML("ClusterTrainingRuntime", 8)}),
			wantReads: 3,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			scheme, reads := testScheme(t), 0
			cached := fake.NewClientBuilder().WithScheme(scheme).WithObjects(clusterRuntime("torch", 1)).Build()
			live := fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
					reads++
					return c.Get(ctx, key, obj, opts...)
				},
			})
			if tc.configMap != nil {
				live.WithObjects(tc.configMap)
			}
			runtimes := NewRuntimes(cached, live.Build())
			for range 2 {
				if _, err := runtimes.For(t.Context(), jobOf("uid", nil)); err != nil {
					t.Fatalf("For: %v", err)
				}
			}
			if reads != tc.wantReads {
				t.Errorf("%d live reads for two calls, want %d", reads, tc.wantReads)
			}
		})
	}
}

// While Trainer is behind, there is nothing to look for; what it froze then is found at once.
func TestRuntimesAwaitTrainer(t *testing.T) {
	scheme, reads, seen := testScheme(t), 0, false
	cached := fake.NewClientBuilder().WithScheme(scheme).WithObjects(clusterRuntime("torch", 1)).Build()
	live := fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			reads++
			return c.Get(ctx, key, obj, opts...)
		},
	}).Build()
	runtimes := NewRuntimes(cached, live)
	runtimes.Looked = func(context.Context, *TrainJob) bool { return seen }
	nodes := func() int32 {
		t.Helper()
		spec, err := runtimes.For(t.Context(), jobOf("uid", nil))
		expect.NoError(t, err)
		return *spec.MLPolicy.NumNodes
	}
	if first, second := nodes(), nodes(); first != 1 || second != 1 || reads != 2 {
		t.Errorf("%d and %d nodes after %d live reads, want the runtime's 1, and one read of the watch cache and the storage", first, second, reads)
	}
	expect.NoError(t, live.Create(t.Context(), snapshotOf("uid", map[string]string{"runtime": snapshotYAML("ClusterTrainingRuntime", 8)})))
	seen = true
	if got := nodes(); got != 8 {
		t.Errorf("%d nodes once Trainer has looked, want the snapshot's 8", got)
	}
}

// frozenAs returns a snapshot of the job that is told from others by its UID.
func frozenAs(uid types.UID, nodes int) *corev1.ConfigMap {
	cm := snapshotOf("uid", map[string]string{"runtime": snapshotYAML("ClusterTrainingRuntime", nodes)})
	cm.UID, cm.CreationTimestamp = uid, metav1.Now()
	return cm
}

// A watch cache that is behind must not describe a job by another runtime than Trainer's.
func TestRuntimesAreNotMisledByAWatchCacheThatIsBehind(t *testing.T) {
	cases := map[string]struct {
		cached, stored *corev1.ConfigMap
		confirmed      bool
		wantNodes      int32
	}{
		"it has not heard of the snapshot":                  {stored: frozenAs("second", 8), wantNodes: 8},
		"it has the replaced one, and the storage is asked": {cached: frozenAs("first", 2), stored: frozenAs("second", 8), confirmed: true, wantNodes: 8},
		"it has a deleted one, and the storage is asked":    {cached: frozenAs("first", 2), confirmed: true, wantNodes: 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			scheme := testScheme(t)
			server := func(cm *corev1.ConfigMap) client.WithWatch {
				builder := fake.NewClientBuilder().WithScheme(scheme)
				if cm != nil {
					builder = builder.WithObjects(cm)
				}
				return builder.Build()
			}
			stored, cached := server(tc.stored), server(tc.cached)
			live := interceptor.NewClient(stored, interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
					if (&client.GetOptions{}).ApplyOptions(opts).AsGetOptions().ResourceVersion == "0" {
						c = cached
					}
					return c.Get(ctx, key, obj)
				},
			})
			runtimes := NewRuntimes(fake.NewClientBuilder().WithScheme(scheme).WithObjects(clusterRuntime("torch", 1)).Build(), live)
			if tc.confirmed {
				if _, err := runtimes.SnapshotTaken(t.Context(), jobOf("uid", nil)); err != nil {
					t.Fatal(err)
				}
			}
			spec, err := runtimes.For(t.Context(), jobOf("uid", nil))
			expect.NoError(t, err)
			if got := *spec.MLPolicy.NumNodes; got != tc.wantNodes {
				t.Errorf("%d nodes, want %d", got, tc.wantNodes)
			}
		})
	}
}

func TestRuntimesFollowReplacedSnapshot(t *testing.T) {
	cases := map[string]struct {
		second      *corev1.ConfigMap
		wantNodes   int32
		wantVersion bool
	}{
		"the same is still there":             {second: frozenAs("first", 1), wantNodes: 1, wantVersion: true},
		"Trainer froze the edited runtime":    {second: frozenAs("second", 8), wantNodes: 8},
		"it is gone, and the runtime renders": {wantNodes: 4},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			scheme, first := testScheme(t), frozenAs("first", 1)
			cached := fake.NewClientBuilder().WithScheme(scheme).WithObjects(clusterRuntime("torch", 4)).Build()
			runtimes := NewRuntimes(cached, fake.NewClientBuilder().WithScheme(scheme).WithObjects(first).Build())
			before, err := runtimes.Of(t.Context(), jobOf("uid", nil))
			expect.NoError(t, err)
			now := fake.NewClientBuilder().WithScheme(scheme)
			if tc.second != nil {
				now = now.WithObjects(tc.second)
			}
			runtimes.Live = now.Build()
			if taken, err := runtimes.SnapshotTaken(t.Context(), jobOf("uid", nil)); err != nil || taken.IsZero() != (tc.second == nil) {
				t.Errorf("SnapshotTaken returned %s, %v", taken, err)
			}
			after, err := runtimes.Of(t.Context(), jobOf("uid", nil))
			expect.NoError(t, err)
			if got := *after.Spec.MLPolicy.NumNodes; got != tc.wantNodes || (before.Version == after.Version) != tc.wantVersion {
				t.Errorf("%d nodes in version %s after %s, want %d", got, after.Version, before.Version, tc.wantNodes)
			}
		})
	}
}

func TestRuntimesForTellsJobsOfOneNameApart(t *testing.T) {
	scheme := testScheme(t)
	cached := fake.NewClientBuilder().WithScheme(scheme).WithObjects(clusterRuntime("torch", 1)).Build()
	live := fake.NewClientBuilder().WithScheme(scheme).
		WithObjects(snapshotOf("first", map[string]string{"runtime": snapshotYAML("ClusterTrainingRuntime", 8)})).Build()
	runtimes := NewRuntimes(cached, live)
	for uid, wantNodes := range map[types.UID]int32{"first": 8, "second": 1} {
		got, err := runtimes.For(t.Context(), jobOf(uid, nil))
		expect.NoError(t, err)
		if *got.MLPolicy.NumNodes != wantNodes {
			t.Errorf("Job with UID %s has %d nodes, want %d", uid, *got.MLPolicy.NumNodes, wantNodes)
		}
	}
}
