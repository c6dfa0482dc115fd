// SPDX-License-Identifier: Apache-2.0

package state

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// LiveWorkload asks the API server for a Workload; nil where there is none.
func LiveWorkload(ctx context.Context, live client.Reader, key client.ObjectKey) (*kueue.Workload, error) {
	wl := &kueue.Workload{}
	if err := live.Get(ctx, key, wl); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading Workload %s: %w", key, err)
	} else if err != nil {
		return nil, nil
	}
	return wl, nil
}

// StillAdmitted asks the API server whether job may run, whatever the cache says, by the Workload that MultiKueue made for it,
// or the one that jobframework makes.
func StillAdmitted(ctx context.Context, live client.Reader, job *trainjob.TrainJob) (bool, error) {
	name := cmp.Or(jobframework.PrebuiltWorkloadNameFor(job), jobframework.GetWorkloadNameForOwnerWithGVK(job.Name, job.UID, trainjob.GVK))
	wl, err := LiveWorkload(ctx, live, client.ObjectKey{Namespace: job.Namespace, Name: name})
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
	wl, err := LiveWorkload(ctx, live, client.ObjectKeyFromObject(cached))
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
