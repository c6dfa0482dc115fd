// SPDX-License-Identifier: Apache-2.0

// Package podsets describes TrainJobs as PodSets, as one Trainer makes them and
// as the API server stores them, and names their replicated jobs whatever became
// of their runtimes.
package podsets

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync/atomic"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/caches"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// Describer describes TrainJobs as one Trainer makes them.
type Describer struct {
	// Field is where that Trainer has its patches.
	Field    patch.Field
	Runtimes *trainjob.Runtimes
	Renderer *trainjob.Renderer
	Defaults *Defaults
	// Remembered has PodSets that were described before.
	Remembered *lru.Cache
	// TolerationRules are applied beside what pkg/gpu knows.
	TolerationRules []podset.TolerationRule
	// Cached reads JobSets.
	Cached   client.Reader
	Recorder *jobevents.Recorder
}

// For returns the Describer of another Trainer, which remembers the same.
func (d *Describer) For(version trainjob.TrainerVersion) *Describer {
	out := *d
	out.Field, out.Runtimes = patch.Of(version), d.Runtimes.As(version)
	return &out
}

// PodSets returns the PodSets of the effective TrainJob, as the API server stores them.
// They are remembered, and so the caller's to read only.
func (d *Describer) PodSets(ctx context.Context, job *trainjob.TrainJob) ([]kueue.PodSet, error) {
	from, runtime, err := d.originOf(ctx, job)
	if err != nil {
		return nil, err
	}
	if podSets := d.recall(from); podSets != nil {
		return podSets, nil
	}
	podSets, err := podset.Describe(ctx, d.Renderer, job, runtime, d.Field)
	if err != nil {
		return nil, err
	}
	podset.AddTolerations(podSets, d.TolerationRules)
	if podSets, err = from.defaults.Apply(podSets); err != nil {
		return nil, err
	}
	d.remember(from, podSets)
	return podSets, nil
}

// origin is all that the PodSets of a TrainJob depend on, feature gates and toleration
// rules of this process aside.
type origin struct {
	job *trainjob.TrainJob
	// runtime is the version of what Trainer renders from.
	runtime  trainjob.RuntimeVersion
	field    patch.Field
	defaults *podset.Defaults
}

// originOf returns what the PodSets of job depend on now, and the runtime to make them of.
func (d *Describer) originOf(ctx context.Context, job *trainjob.TrainJob) (origin, *trainer.TrainingRuntimeSpec, error) {
	runtime, err := d.Runtimes.Of(ctx, job)
	if err != nil {
		return origin{}, nil, err
	}
	defaults, err := d.Defaults.get()
	if err != nil {
		return origin{}, nil, err
	}
	return origin{job: job, runtime: runtime.Version, field: d.Field, defaults: defaults}, runtime.Spec, nil
}

// same reports whether nothing changed: the API server counts changes of the spec in the
// generation, but not those of labels and annotations, which Trainer's plugins may read.
func (s origin) same(o origin) bool {
	return s.job.UID == o.job.UID && s.job.Generation == o.job.Generation && s.runtime == o.runtime &&
		s.field == o.field && s.defaults == o.defaults &&
		maps.Equal(s.job.Labels, o.job.Labels) && maps.Equal(s.job.Annotations, o.job.Annotations)
}

// Remembers bounds the memory: a Describer has the PodSets of so many TrainJobs. One that runs
// is described by its Workload, so this is about the ones that wait and change. largest is how many bytes the PodSets of
// one may have, encoded: those with more, of whose environment a user makes a file, are rendered at each look.
const (
	Remembers = 1024
	largest   = 16 << 10
)

// remembered are PodSets, with what they were made from.
type remembered struct {
	origin
	podSets []kueue.PodSet
}

// recall returns the PodSets made from the same origin, or nil: that spares rendering a TrainJob at every look.
func (d *Describer) recall(from origin) []kueue.PodSet {
	if value, ok := d.Remembered.Get(from.job.UID); ok && value.(*remembered).same(from) {
		return value.(*remembered).podSets
	}
	return nil
}

// remember keeps the PodSets of a TrainJob that is stored; another one has neither UID nor
// generation.
func (d *Describer) remember(from origin, podSets []kueue.PodSet) {
	if from.job.UID == "" {
		return
	}
	size := 0
	for i := range podSets {
		size += podSets[i].Template.Size()
	}
	if size > largest {
		d.Remembered.Remove(from.job.UID)
		return
	}
	from.job = &trainjob.TrainJob{ObjectMeta: metav1.ObjectMeta{
		UID: from.job.UID, Generation: from.job.Generation,
		Labels: maps.Clone(from.job.Labels), Annotations: maps.Clone(from.job.Annotations),
	}}
	d.Remembered.Add(from.job.UID, &remembered{origin: from, podSets: podSets})
}

// Render returns the JobSet that Trainer makes of job.
func (d *Describer) Render(ctx context.Context, job *trainjob.TrainJob) (*jobsetapi.JobSet, error) {
	runtime, err := d.Runtimes.For(ctx, job)
	if err != nil {
		return nil, err
	}
	patches, err := d.Field.All(&job.Spec)
	if err != nil {
		return nil, err
	}
	return d.Renderer.Render(ctx, job, runtime, patches)
}

// Gated returns the spec of job with our part as it is while job waits for admission, and
// whether that is a change. A job that another controller runs waits without: Trainer makes
// nothing of it in this cluster, and in the other one our part would be in the way.
func (d *Describer) Gated(ctx context.Context, job *trainjob.TrainJob) (spec trainjob.Spec, changed bool, err error) {
	spec = job.DeepCopy().Spec
	if job.ManagedExternally() {
		d.Field.Drop(&spec)
		return spec, d.Field.Has(&job.Spec), nil
	}
	names, err := d.replicatedJobs(ctx, job)
	if err != nil {
		return spec, false, err
	}
	placements := kueuelib.Map(names, func(name *string) patch.Placement { return patch.Gated(*name) })
	return spec, d.Field.Set(&spec, placements), nil
}

// replicatedJobs names the replicated jobs of job's runtime. Where that is gone or cannot be
// read, the ones that our part already names serve as well, or those of the JobSet: a job
// has to stop whatever became of its runtime.
func (d *Describer) replicatedJobs(ctx context.Context, job *trainjob.TrainJob) ([]string, error) {
	runtime, err := d.Runtimes.For(ctx, job)
	if err == nil && len(runtime.Template.Spec.ReplicatedJobs) > 0 {
		return podset.NamesOf(runtime.Template.Spec.ReplicatedJobs), nil
	}
	var known []string
	if d.Field.Has(&job.Spec) {
		known, _ = d.Field.Jobs(&job.Spec)
	} else if js, _ := state.JobSetOf(ctx, d.Cached, job); js != nil {
		known = podset.NamesOf(js.Spec.ReplicatedJobs)
	}
	if len(known) == 0 {
		return nil, err
	}
	if errors.Is(err, trainjob.ErrSnapshotUnreadable) {
		d.Recorder.Warn(job, jobevents.ReasonNotDescribed, jobevents.ActionDescribe, err)
	}
	return known, nil
}

// WithoutNames reports whether err says that nothing names the replicated jobs of a job:
// then there is no JobSet of it that could run, and nothing to put a gate on.
func WithoutNames(err error) bool {
	return RuntimeMissing(err) || errors.Is(err, trainjob.ErrSnapshotUnreadable)
}

// RuntimeMissing reports whether only the user can fix err, by naming or making a runtime.
func RuntimeMissing(err error) bool {
	return errors.Is(err, trainjob.ErrRuntimeNotFound) || errors.Is(err, trainjob.ErrRuntimeUnsupported)
}

// Defaults follows the served Workload CRD and keeps what was made of it: the CRD
// is so big that copying it out of a cache would cost more than all else about a PodSet.
type Defaults struct{ made atomic.Pointer[madeDefaults] }

// madeDefaults are those that were made of a generation of a CRD.
type madeDefaults struct {
	uid        types.UID
	generation int64
	defaults   *podset.Defaults
	err        error
}

// errNoWorkloadCRD is why there are no defaults where there is no CRD.
var errNoWorkloadCRD = fmt.Errorf("there is no CRD %s: install Kueue", podset.WorkloadCRD)

// FixedDefaults are those that never change.
func FixedDefaults(defaults *podset.Defaults) *Defaults {
	w := &Defaults{}
	w.made.Store(&madeDefaults{defaults: defaults})
	return w
}

// Follow looks at the CRD now and at every change of it. It returns when crds is in step.
func (w *Defaults) Follow(ctx context.Context, crds cache.Cache) error {
	w.gone()
	return caches.FollowCRD(ctx, crds, podset.WorkloadCRD, w.look, w.gone)
}

// look makes the defaults again where the schema changed. Most events are of the status, and
// other defaults, though the same ones, would have every TrainJob described again.
func (w *Defaults) look(crd *apiextensionsv1.CustomResourceDefinition) {
	if made := w.made.Load(); made != nil && crd.UID != "" && made.uid == crd.UID && made.generation == crd.Generation {
		return
	}
	defaults, err := podset.NewDefaults(crd, kueue.SchemeGroupVersion.Version)
	w.made.Store(&madeDefaults{crd.UID, crd.Generation, defaults, err})
}

// gone takes note that there is no CRD.
func (w *Defaults) gone() { w.made.Store(&madeDefaults{err: errNoWorkloadCRD}) }

// get returns the defaults of the CRD as it is now. They are the same ones until it changes.
func (w *Defaults) get() (*podset.Defaults, error) {
	made := w.made.Load()
	return made.defaults, made.err
}
