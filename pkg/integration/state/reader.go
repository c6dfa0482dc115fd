// SPDX-License-Identifier: Apache-2.0

package state

import (
	"context"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/caches"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// View is what the caches had of the TrainJobs of a name: of the one that has it now and of those that had it
// before. Its objects are those of the caches, to be read only.
type View struct {
	// At is from when it is: what is waited for has to be over by then.
	At time.Time
	// Name is that of the TrainJobs.
	Name types.NamespacedName
	// Workloads are those of TrainJobs of this name.
	Workloads []*kueue.Workload
	// Jobs are those of JobSets of this name.
	Jobs []batchv1.Job
	// JobSet is the one of this name, or nil.
	JobSet *jobsetapi.JobSet
	// NamespaceDeleted is since when the namespace is being deleted; zero: it is not.
	NamespaceDeleted time.Time
}

// Observe reads what there is of the TrainJobs of a name. The JobSet comes last: what it has resumed may have Jobs that
// run, and where these were read later, one that is suspended may be the one that had them run.
func Observe(ctx context.Context, cached client.Reader, name types.NamespacedName) (View, error) {
	at := time.Now()
	workloads, err := workloads(ctx, cached, name)
	if err != nil {
		return View{}, err
	}
	var jobs batchv1.JobList
	err = cached.List(ctx, &jobs, client.InNamespace(name.Namespace), client.UnsafeDisableDeepCopy, client.MatchingFields{caches.JobSetIndex: name.Name})
	if err != nil {
		return View{}, fmt.Errorf("listing the child Jobs of JobSet %s: %w", name, err)
	}
	js, err := jobSetOf(ctx, cached, name)
	if err != nil {
		return View{}, err
	}
	var namespace corev1.Namespace
	if err := cached.Get(ctx, client.ObjectKey{Name: name.Namespace}, &namespace); client.IgnoreNotFound(err) != nil {
		return View{}, err
	}
	return View{At: at, Name: name, Workloads: workloads, Jobs: jobs.Items, JobSet: js, NamespaceDeleted: ptr.Deref(namespace.DeletionTimestamp, metav1.Time{}).Time}, nil
}

// workloads lists the Workloads of TrainJobs of a name, to be read only.
func workloads(ctx context.Context, cached client.Reader, name types.NamespacedName) ([]*kueue.Workload, error) {
	var list kueue.WorkloadList
	err := cached.List(ctx, &list, client.InNamespace(name.Namespace), client.UnsafeDisableDeepCopy,
		jobframework.OwnerReferenceIndexFieldMatcher(trainjob.GVK, name.Name))
	if err != nil {
		return nil, fmt.Errorf("listing the Workloads of TrainJob %s: %w", name, err)
	}
	return kueuelib.Map(list.Items, func(wl *kueue.Workload) *kueue.Workload { return wl }), nil
}

// HoldingQuota reads the Workload of job that holds quota, or nil.
func HoldingQuota(ctx context.Context, cached client.Reader, job *trainjob.TrainJob) (*kueue.Workload, error) {
	found, err := workloads(ctx, cached, client.ObjectKeyFromObject(job))
	return View{Workloads: found}.HoldingQuota(job), err
}

// JobSetOf reads the JobSet that Trainer made for job, or nil: then there is nothing that could run.
func JobSetOf(ctx context.Context, cached client.Reader, job *trainjob.TrainJob) (*jobsetapi.JobSet, error) {
	js, err := jobSetOf(ctx, cached, client.ObjectKeyFromObject(job))
	return View{JobSet: js}.JobSetOf(job), err
}

func jobSetOf(ctx context.Context, cached client.Reader, name types.NamespacedName) (*jobsetapi.JobSet, error) {
	js := &jobsetapi.JobSet{}
	if err := cached.Get(ctx, name, js); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return js, nil
}

// WorkloadsOf returns the Workloads of this very job; one of the same name may have left some behind.
func (v View) WorkloadsOf(job *trainjob.TrainJob) []*kueue.Workload {
	return slices.DeleteFunc(slices.Clone(v.Workloads), func(wl *kueue.Workload) bool { return !IsControlledBy(wl, job) })
}

// HoldingQuota returns the Workload of job that holds quota, or nil. A finished one holds none, although it keeps its
// conditions.
func (v View) HoldingQuota(job *trainjob.TrainJob) *kueue.Workload {
	for _, wl := range v.Workloads {
		if IsControlledBy(wl, job) && HoldsQuota(wl) {
			return wl
		}
	}
	return nil
}

// JobSetOf returns the JobSet that Trainer made for job, or nil: then there is nothing that could run.
func (v View) JobSetOf(job *trainjob.TrainJob) *jobsetapi.JobSet {
	if v.JobSet == nil || !IsControlledBy(v.JobSet, job) {
		return nil
	}
	return v.JobSet
}

// ChildJobsOf returns the Jobs that JobSet made for job.
func (v View) ChildJobsOf(job *trainjob.TrainJob) []batchv1.Job {
	js := v.JobSetOf(job)
	return slices.DeleteFunc(slices.Clone(v.Jobs), func(child batchv1.Job) bool { return js == nil || !IsControlledBy(&child, js) })
}
