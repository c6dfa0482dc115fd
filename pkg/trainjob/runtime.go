// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"context"
	"errors"
	"fmt"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// The name and key under which Trainer 2.3 and later freeze the runtime of a
// TrainJob (pkg/runtime/core/snapshot.go there). Earlier releases freeze nothing.
const (
	snapshotSuffix = "-runtime-snapshot"
	snapshotKey    = "runtime"
)

// What is remembered is bounded, so that a long life costs no more memory than a busy hour.
// Snapshots of the same runtime have the same text, so few of them differ.
const (
	snapshotsRemembered = 16384
	textsRemembered     = 64
)

// ErrRuntimeNotFound is the cause when neither a snapshot nor the runtime exists.
var ErrRuntimeNotFound = errors.New("runtime not found")

// ErrRuntimeUnsupported is the cause when spec.runtimeRef names a kind that is not a runtime.
var ErrRuntimeUnsupported = errors.New("runtime kind not supported")

// ErrSnapshotUnreadable is the cause when Trainer froze the runtime, and what stands there
// now is no runtime.
var ErrSnapshotUnreadable = errors.New("the runtime snapshot cannot be read")

// Runtimes finds the runtime that Trainer uses for a TrainJob.
type Runtimes struct {
	// Cached reads ClusterTrainingRuntimes and TrainingRuntimes.
	Cached client.Reader
	// Live reads the snapshot ConfigMaps, and runtimes that the cache does not have.
	// Nil: there are no snapshots, and the cache is right. Caching them would mean caching every
	// ConfigMap of the cluster: Trainer puts no label on its snapshots.
	Live client.Reader
	// Served is the generation of Trainer that renders; As returns one for another.
	Served TrainerVersion

	// Looked reports whether Trainer has looked at a TrainJob, and so frozen its runtime. A
	// snapshot that the storage did not have is not looked for again before that. Nil: it
	// always may have.
	Looked func(context.Context, *TrainJob) bool

	// snapshots are Runtimes by the UID of the TrainJob, texts their specs by the text;
	// unfrozen has the UIDs of those without a snapshot.
	snapshots, texts, unfrozen *lru.Cache
}

// RuntimeVersion tells one state of a runtime from others, for one TrainJob.
type RuntimeVersion string

// Runtime is what Trainer renders a TrainJob from.
type Runtime struct {
	// Spec is the caller's to read only.
	Spec    *trainer.TrainingRuntimeSpec
	Version RuntimeVersion
}

// NewRuntimes makes a finder for the newest Trainer that reads from the two given readers.
func NewRuntimes(cached, live client.Reader) *Runtimes {
	return &Runtimes{Cached: cached, Live: live, Served: Trainer23,
		snapshots: lru.New(snapshotsRemembered), texts: lru.New(textsRemembered), unfrozen: lru.New(snapshotsRemembered)}
}

// As returns the same finder for another generation of Trainer.
func (r *Runtimes) As(served TrainerVersion) *Runtimes {
	other := *r
	other.Served = served
	return &other
}

// For returns the runtime spec of Of.
func (r *Runtimes) For(ctx context.Context, job *TrainJob) (*trainer.TrainingRuntimeSpec, error) {
	runtime, err := r.Of(ctx, job)
	return runtime.Spec, err
}

// Of returns the runtime that Trainer renders job from: its snapshot when there is one, the
// live object before. What an older Trainer makes of it otherwise than the Renderer, which
// has the newest one's library, is brought in line here.
// Errors wrap ErrRuntimeNotFound, ErrRuntimeUnsupported or ErrSnapshotUnreadable and name the
// remedy.
func (r *Runtimes) Of(ctx context.Context, job *TrainJob) (Runtime, error) {
	if r.Served < Trainer23 {
		return r.replaced(ctx, job)
	}
	if runtime, err := r.snapshot(ctx, job); err != nil || runtime.Spec != nil {
		return runtime, err
	}
	return r.live(ctx, job)
}

// replaced returns the live runtime as Trainer before 2.3 uses it.
func (r *Runtimes) replaced(ctx context.Context, job *TrainJob) (Runtime, error) {
	runtime, err := r.live(ctx, job)
	if err != nil || !asksForResources(job) {
		return runtime, err
	}
	return Runtime{Spec: replaceResources(runtime.Spec, job), Version: "replaced/" + runtime.Version}, nil
}

func (r *Runtimes) live(ctx context.Context, job *TrainJob) (Runtime, error) {
	key, kind := client.ObjectKey{Name: job.Spec.RuntimeRef.Name}, ptr.Deref(job.Spec.RuntimeRef.Kind, trainer.ClusterTrainingRuntimeKind)
	var rt trainer.TrainingRuntime
	var err error
	switch kind {
	case trainer.ClusterTrainingRuntimeKind:
		var shared trainer.ClusterTrainingRuntime
		err = r.get(ctx, key, &shared)
		rt = trainer.TrainingRuntime(shared)
	case trainer.TrainingRuntimeKind:
		key.Namespace = job.Namespace
		err = r.get(ctx, key, &rt)
	default:
		return Runtime{}, fmt.Errorf("%w: spec.runtimeRef.kind is %q; set it to %s or %s",
			ErrRuntimeUnsupported, kind, trainer.ClusterTrainingRuntimeKind, trainer.TrainingRuntimeKind)
	}
	if err != nil {
		return Runtime{}, missing(err, kind, key)
	}
	return Runtime{&rt.Spec, versionOf(&rt)}, nil
}

// versionOf returns the version of a runtime, or of the ConfigMap with a snapshot of one.
func versionOf(obj client.Object) RuntimeVersion {
	return RuntimeVersion(fmt.Sprintf("%s/%s", obj.GetUID(), obj.GetResourceVersion()))
}

// get asks the API server itself before it calls a runtime missing: people create
// runtime and TrainJob in one go, and the cache hears of the first a moment later. A name that no
// object can have is not even asked for: the client would call that an error of its own.
func (r *Runtimes) get(ctx context.Context, key client.ObjectKey, obj client.Object) error {
	err := r.Cached.Get(ctx, key, obj)
	if apierrors.IsNotFound(err) && r.Live != nil && key.Name != "" && len(content.IsPathSegmentName(key.Name)) == 0 {
		return r.Live.Get(ctx, key, obj)
	}
	return err
}

func missing(err error, kind string, key client.ObjectKey) error {
	if !apierrors.IsNotFound(err) {
		return err
	}
	where := ""
	if key.Namespace != "" {
		where = " in namespace " + key.Namespace
	}
	return fmt.Errorf("%w: there is no %s %q%s; create it, or name another in spec.runtimeRef", ErrRuntimeNotFound, kind, key.Name, where)
}

// snapshot reads what Trainer froze for this very TrainJob; without a spec where it did
// not. A job that was not stored yet has no UID and so no snapshot.
func (r *Runtimes) snapshot(ctx context.Context, job *TrainJob) (Runtime, error) {
	if job.UID == "" || r.Live == nil {
		return Runtime{}, nil
	}
	if known, ok := r.snapshots.Get(job.UID); ok {
		return known.(Runtime), nil
	}
	_, unfrozen := r.unfrozen.Get(job.UID)
	if unfrozen && r.Looked != nil && !r.Looked(ctx, job) {
		return Runtime{}, nil
	}
	cm, err := r.look(ctx, job, unfrozen)
	if err != nil {
		return Runtime{}, err
	}
	return r.remember(job, cm)
}

// remember keeps the snapshot of job, or that there is none, so that it is read once.
func (r *Runtimes) remember(job *TrainJob, cm *corev1.ConfigMap) (Runtime, error) {
	r.Forget(job.UID)
	if cm == nil {
		r.unfrozen.Add(job.UID, nil)
		return Runtime{}, nil
	}
	spec, err := r.decode(cm.Data[snapshotKey])
	if err != nil {
		return Runtime{}, fmt.Errorf("%w: ConfigMap %s, key %q, is not the runtime snapshot Trainer writes: %w; delete it and Trainer recreates it",
			ErrSnapshotUnreadable, client.ObjectKeyFromObject(cm), snapshotKey, err)
	}
	runtime := Runtime{Spec: spec, Version: versionOf(cm)}
	r.snapshots.Add(job.UID, runtime)
	return runtime, nil
}

// Where the API server takes a ConfigMap from. Its watch cache is half the work and may be
// a moment behind: what it lacks can be in the storage, and what it has was Trainer's, but
// may have been replaced since, which SnapshotTaken finds out.
var (
	watchCache = &client.GetOptions{Raw: &metav1.GetOptions{ResourceVersion: "0"}}
	storage    = &client.GetOptions{}
)

// look reads the snapshot of job; nil: there is none. One that the storage did not have once is
// asked of the storage alone: the watch cache may still have what was deleted there.
func (r *Runtimes) look(ctx context.Context, job *TrainJob, unfrozen bool) (*corev1.ConfigMap, error) {
	if !unfrozen {
		if cm, err := r.snapshotOf(ctx, job, watchCache); cm != nil || err != nil {
			return cm, err
		}
	}
	return r.snapshotOf(ctx, job, storage)
}

// snapshotOf returns the ConfigMap with the snapshot of this very TrainJob, or nil: a former
// one of the same name may have left one behind for the garbage collector.
func (r *Runtimes) snapshotOf(ctx context.Context, job *TrainJob, from client.GetOption) (*corev1.ConfigMap, error) {
	var cm corev1.ConfigMap
	key := types.NamespacedName{Namespace: job.Namespace, Name: job.Name + snapshotSuffix}
	if err := r.Live.Get(ctx, key, &cm, from); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if owner := metav1.GetControllerOf(&cm); owner == nil || owner.UID != job.UID {
		return nil, nil
	}
	return &cm, nil
}

// SnapshotTaken tells when Trainer froze the runtime of job; zero when it did not, as none before
// 2.3 does. It asks the storage, and what that has is from then on what Of returns: people may
// replace it.
func (r *Runtimes) SnapshotTaken(ctx context.Context, job *TrainJob) (time.Time, error) {
	if r.Served < Trainer23 {
		return time.Time{}, nil
	}
	cm, err := r.snapshotOf(ctx, job, storage)
	if err != nil {
		return time.Time{}, err
	}
	_, _ = r.remember(job, cm) // Of tells those who need the runtime that it cannot be read.
	if cm == nil {
		return time.Time{}, nil
	}
	return cm.CreationTimestamp.Time, nil
}

// Forget drops what is remembered of a TrainJob that is gone or over. The specs themselves
// are shared by all that have the same one.
func (r *Runtimes) Forget(uid types.UID) {
	r.snapshots.Remove(uid)
	r.unfrozen.Remove(uid)
}

// decode returns the same spec for the same text. It takes no text for an error, as Trainer does, and
// not for a runtime without replicated jobs, which is what YAML makes of it.
func (r *Runtimes) decode(text string) (*trainer.TrainingRuntimeSpec, error) {
	if text == "" {
		return nil, errors.New("it is missing or empty")
	}
	if spec, ok := r.texts.Get(text); ok {
		return spec.(*trainer.TrainingRuntimeSpec), nil
	}
	// Both runtime kinds hold the same spec.
	var rt trainer.TrainingRuntime
	if err := yaml.Unmarshal([]byte(text), &rt); err != nil {
		return nil, err
	}
	r.texts.Add(text, &rt.Spec)
	return &rt.Spec, nil
}
