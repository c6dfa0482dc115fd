// SPDX-License-Identifier: Apache-2.0

package state

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
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

// ReadWorkload reads a Workload, or what Workload that is; nil where there is none.
func ReadWorkload(ctx context.Context, from client.Reader, what string, key client.ObjectKey) (*kueue.Workload, error) {
	wl := &kueue.Workload{}
	if err := from.Get(ctx, key, wl); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading %s %s: %w", what, key, err)
	} else if err != nil {
		return nil, nil
	}
	return wl, nil
}

// StillAdmitted asks the API server whether job may run, whatever the cache says, by the Workload that MultiKueue made for it,
// or the one that jobframework makes.
func StillAdmitted(ctx context.Context, live client.Reader, job *trainjob.TrainJob) (bool, error) {
	name := cmp.Or(jobframework.PrebuiltWorkloadNameFor(job), jobframework.GetWorkloadNameForOwnerWithGVK(job.Name, job.UID, trainjob.GVK))
	wl, err := ReadWorkload(ctx, live, "Workload", client.ObjectKey{Namespace: job.Namespace, Name: name})
	if err != nil || wl == nil {
		return false, err
	}
	return IsControlledBy(wl, job) && wl.DeletionTimestamp.IsZero() && MayRun(wl) && SameTimeLimit(wl, job), nil
}

// SameTimeLimit reports whether a Workload has the time limit that the job asks for. With
// another one jobframework takes it for another job's, and that is no view of the past.
func SameTimeLimit(wl *kueue.Workload, job *trainjob.TrainJob) bool {
	return ptr.Equal(wl.Spec.MaximumExecutionTimeSeconds, jobframework.MaximumExecutionTimeSecondsForObject(job))
}

// AdmissionStands asks the API server whether the admission that the cache knows still stands.
func AdmissionStands(ctx context.Context, live client.Reader, cached *kueue.Workload) (bool, error) {
	wl, err := ReadWorkload(ctx, live, "Workload", client.ObjectKeyFromObject(cached))
	if err != nil || wl == nil {
		return false, err
	}
	return wl.UID == cached.UID && wl.DeletionTimestamp.IsZero() && MayRun(wl) &&
		equality.Semantic.DeepEqual(wl.Status.Admission, cached.Status.Admission) &&
		slices.EqualFunc(wl.Status.AdmissionChecks, cached.Status.AdmissionChecks, updateAlike), nil
}

// updateAlike reports whether two states of an admission check add the same to pods.
func updateAlike(a, b kueue.AdmissionCheckState) bool {
	return a.Name == b.Name && equality.Semantic.DeepEqual(a.PodSetUpdates, b.PodSetUpdates)
}

// AreCurrent reports whether our views are what the API server has. For a stop they are where the specs are: nobody shall put
// that off by changing labels and annotations all the time.
func AreCurrent(ctx context.Context, live client.Reader, job *trainjob.TrainJob, js *jobsetapi.JobSet) (bool, error) {
	for view, stored := range map[client.Object]client.Object{job: &trainjob.TrainJob{}, js: &jobsetapi.JobSet{}} {
		if err := live.Get(ctx, client.ObjectKeyFromObject(view), stored); err != nil {
			return false, client.IgnoreNotFound(err)
		}
		sameSpec := stored.GetUID() == view.GetUID() && stored.GetGeneration() == view.GetGeneration()
		if stored.GetResourceVersion() != view.GetResourceVersion() && (!job.Suspended() || !sameSpec) {
			return false, nil
		}
	}
	return true, nil
}

// AtATime is how many objects of a list are in memory at a time: anybody may make thousands of a megabyte each, and label them.
const AtATime = 10

// Each calls do for each object that the API server lists. list says of which kind, and is left as it is.
func Each[T client.Object](ctx context.Context, live client.Reader, list client.ObjectList, do func(T), opts ...client.ListOption) error {
	for more := ""; ; {
		page := list.DeepCopyObject().(client.ObjectList)
		if err := live.List(ctx, page, append(opts, client.Limit(AtATime), client.Continue(more))...); err != nil {
			return err
		}
		err := apimeta.EachListItem(page, func(obj runtime.Object) error {
			do(obj.(T))
			return nil
		})
		if more = page.GetContinue(); more == "" || err != nil {
			return err
		}
	}
}

// EachChildJob calls do for each Job of js that the API server has.
func EachChildJob(ctx context.Context, live client.Reader, js *jobsetapi.JobSet, do func(*batchv1.Job)) error {
	err := Each(ctx, live, &batchv1.JobList{}, func(child *batchv1.Job) {
		if IsControlledBy(child, js) {
			do(child)
		}
	}, client.InNamespace(js.Namespace), client.MatchingLabels{jobsetapi.JobSetNameKey: js.Name})
	if err != nil {
		return fmt.Errorf("listing the Jobs of JobSet %s: %w", client.ObjectKeyFromObject(js), err)
	}
	return nil
}

// EachJobNamed calls do for each Job of these names that the API server has. A few are asked for by name, however
// many others the namespace has.
func EachJobNamed(ctx context.Context, live client.Reader, namespace string, names sets.Set[string], do func(*metav1.PartialObjectMetadata)) error {
	if names.Len() > AtATime {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(batchv1.SchemeGroupVersion.WithKind("JobList"))
		err := Each(ctx, live, list, func(child *metav1.PartialObjectMetadata) {
			if names.Has(child.Name) {
				do(child)
			}
		}, client.InNamespace(namespace))
		if err != nil {
			return fmt.Errorf("listing the Jobs of namespace %s: %w", namespace, err)
		}
		return nil
	}
	for name := range names {
		child := &metav1.PartialObjectMetadata{}
		child.SetGroupVersionKind(JobKind)
		err := live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, child)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("reading Job %s/%s: %w", namespace, name, err)
		}
		if err == nil {
			do(child)
		}
	}
	return nil
}
