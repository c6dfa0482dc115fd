// SPDX-License-Identifier: Apache-2.0

package state

import (
	"context"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/caches"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// Reader reads what there is of the TrainJobs of a name: of those that have it now and of
// those that had it before. Objects are the caller's to read only, lists are the caller's.
type Reader interface {
	// Workloads lists the Workloads of TrainJobs of this name.
	Workloads(ctx context.Context, name types.NamespacedName) ([]kueue.Workload, error)
	// JobSet returns the JobSet of this name, or nil.
	JobSet(ctx context.Context, name types.NamespacedName) (*jobsetapi.JobSet, error)
	// Jobs lists the Jobs of JobSets of this name.
	Jobs(ctx context.Context, name types.NamespacedName) ([]batchv1.Job, error)
}

// FromCache returns a Reader that asks c each time. What it returns is as old as c's caches.
func FromCache(c client.Reader) Reader { return cached{c} }

type cached struct{ client client.Reader }

func (c cached) Workloads(ctx context.Context, name types.NamespacedName) ([]kueue.Workload, error) {
	var list kueue.WorkloadList
	err := c.client.List(ctx, &list, client.InNamespace(name.Namespace), client.UnsafeDisableDeepCopy,
		jobframework.OwnerReferenceIndexFieldMatcher(trainjob.GVK, name.Name))
	if err != nil {
		return nil, fmt.Errorf("listing the Workloads of TrainJob %s: %w", name, err)
	}
	return list.Items, nil
}

func (c cached) JobSet(ctx context.Context, name types.NamespacedName) (*jobsetapi.JobSet, error) {
	js := &jobsetapi.JobSet{}
	if err := c.client.Get(ctx, name, js); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return js, nil
}

func (c cached) Jobs(ctx context.Context, name types.NamespacedName) ([]batchv1.Job, error) {
	var list batchv1.JobList
	err := c.client.List(ctx, &list, client.InNamespace(name.Namespace), client.UnsafeDisableDeepCopy,
		client.MatchingFields{caches.JobSetIndex: name.Name})
	if err != nil {
		return nil, fmt.Errorf("listing the child Jobs of JobSet %s: %w", name, err)
	}
	return list.Items, nil
}

// Once returns a Reader for one reconcile: it asks r once for each kind, so that what the
// reconciler itself decides, it decides by one view. jobframework lists Workloads on its own,
// and later: what it asks for goes by Latest.
func Once(r Reader) Reader {
	return &once{
		reader:    r,
		workloads: map[types.NamespacedName][]kueue.Workload{},
		jobSets:   map[types.NamespacedName]*jobsetapi.JobSet{},
		jobs:      map[types.NamespacedName][]batchv1.Job{},
	}
}

// Latest returns a Reader that is no older than what the caches have now, also where r is
// one of Once.
func Latest(r Reader) Reader {
	if o, ok := r.(*once); ok {
		return o.reader
	}
	return r
}

type once struct {
	reader    Reader
	workloads map[types.NamespacedName][]kueue.Workload
	jobSets   map[types.NamespacedName]*jobsetapi.JobSet
	jobs      map[types.NamespacedName][]batchv1.Job
}

func (o *once) Workloads(ctx context.Context, name types.NamespacedName) ([]kueue.Workload, error) {
	known, err := remembered(ctx, o.workloads, name, o.reader.Workloads)
	return slices.Clone(known), err
}

func (o *once) JobSet(ctx context.Context, name types.NamespacedName) (*jobsetapi.JobSet, error) {
	return remembered(ctx, o.jobSets, name, o.reader.JobSet)
}

func (o *once) Jobs(ctx context.Context, name types.NamespacedName) ([]batchv1.Job, error) {
	known, err := remembered(ctx, o.jobs, name, o.reader.Jobs)
	return slices.Clone(known), err
}

// remembered reads what is not known yet. An error is not remembered.
func remembered[T any](ctx context.Context, known map[types.NamespacedName]T, name types.NamespacedName, read func(context.Context, types.NamespacedName) (T, error)) (T, error) {
	if value, ok := known[name]; ok {
		return value, nil
	}
	value, err := read(ctx, name)
	if err == nil {
		known[name] = value
	}
	return value, err
}
