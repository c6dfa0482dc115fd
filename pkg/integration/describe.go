// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// describe returns the PodSets of the effective TrainJob, as the API server stores them.
// They are remembered, and so the caller's to read only.
func (e *environment) describe(ctx context.Context, job *trainjob.TrainJob) ([]kueue.PodSet, error) {
	runtime, err := e.runtimes.Of(ctx, job)
	if err != nil {
		return nil, err
	}
	defaults, err := e.defaults.get()
	if err != nil {
		return nil, err
	}
	from := origin{job: job, runtime: runtime.Version, field: e.field, defaults: defaults}
	if podSets := e.described.get(from); podSets != nil {
		return podSets, nil
	}
	podSets, err := podset.Describe(ctx, e.renderer, job, runtime.Spec, e.field)
	if err != nil {
		return nil, err
	}
	podset.AddTolerations(podSets, e.tolerationRules)
	if podSets, err = defaults.Apply(podSets); err != nil {
		return nil, err
	}
	e.described.add(from, podSets)
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

// same reports whether nothing changed: the API server counts changes of the spec in the
// generation, but not those of labels and annotations, which Trainer's plugins may read.
func (s origin) same(o origin) bool {
	return s.job.UID == o.job.UID && s.job.Generation == o.job.Generation && s.runtime == o.runtime &&
		s.field == o.field && s.defaults == o.defaults &&
		maps.Equal(s.job.Labels, o.job.Labels) && maps.Equal(s.job.Annotations, o.job.Annotations)
}

// podSetsRemembered bounds the memory: those of a TrainJob take a few KiB. One that runs
// is described by its Workload, so this is about the ones that wait and change.
const podSetsRemembered = 1024

// rememberedPodSets spares rendering a TrainJob at every look. Nil remembers nothing.
type rememberedPodSets struct {
	byUID *lru.Cache
}

type remembered struct {
	origin
	podSets []kueue.PodSet
}

func newRememberedPodSets() *rememberedPodSets {
	return &rememberedPodSets{byUID: lru.New(podSetsRemembered)}
}

// get returns the PodSets made from the same origin, or nil.
func (r *rememberedPodSets) get(from origin) []kueue.PodSet {
	if r == nil {
		return nil
	}
	if value, ok := r.byUID.Get(from.job.UID); ok && value.(*remembered).same(from) {
		return value.(*remembered).podSets
	}
	return nil
}

// forget drops the PodSets of a TrainJob.
func (r *rememberedPodSets) forget(uid types.UID) {
	if r != nil {
		r.byUID.Remove(uid)
	}
}

// add remembers the PodSets of a TrainJob that is stored; another one has neither UID nor
// generation.
func (r *rememberedPodSets) add(from origin, podSets []kueue.PodSet) {
	if r == nil || from.job.UID == "" {
		return
	}
	from.job = &trainjob.TrainJob{ObjectMeta: metav1.ObjectMeta{
		UID: from.job.UID, Generation: from.job.Generation,
		Labels: maps.Clone(from.job.Labels), Annotations: maps.Clone(from.job.Annotations),
	}}
	r.byUID.Add(from.job.UID, &remembered{origin: from, podSets: podSets})
}
