// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// liveWorkload asks the API server for a Workload; nil where there is none.
func liveWorkload(ctx context.Context, live client.Reader, key client.ObjectKey) (*kueue.Workload, error) {
	wl := &kueue.Workload{}
	err := live.Get(ctx, key, wl)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading Workload %s: %w", key, err)
	}
	return wl, nil
}

// stillAdmitted asks the API server whether job may run, whatever the cache says, by the Workload that MultiKueue made for it,
// or the one that jobframework makes.
func stillAdmitted(ctx context.Context, live client.Reader, job *trainjob.TrainJob) (bool, error) {
	name := cmp.Or(jobframework.PrebuiltWorkloadNameFor(job), jobframework.GetWorkloadNameForOwnerWithGVK(job.Name, job.UID, trainjob.GVK))
	wl, err := liveWorkload(ctx, live, client.ObjectKey{Namespace: job.Namespace, Name: name})
	if err != nil || wl == nil {
		return false, err
	}
	return state.IsControlledBy(wl, job) && wl.DeletionTimestamp.IsZero() && state.MayRun(wl) && sameTimeLimit(wl, job), nil
}

// sameTimeLimit reports whether a Workload has the time limit that the job asks for. With
// another one jobframework takes it for another job's, and that is no view of the past.
func sameTimeLimit(wl *kueue.Workload, job *trainjob.TrainJob) bool {
	return ptr.Equal(wl.Spec.MaximumExecutionTimeSeconds, jobframework.MaximumExecutionTimeSecondsForObject(job))
}

// confirm asks the API server whether the admission that the cache knows still stands.
func confirm(ctx context.Context, live client.Reader, cached *kueue.Workload) error {
	wl, err := liveWorkload(ctx, live, client.ObjectKeyFromObject(cached))
	if err != nil {
		return err
	}
	if wl == nil || wl.UID != cached.UID || !wl.DeletionTimestamp.IsZero() || !state.MayRun(wl) || !equality.Semantic.DeepEqual(wl.Status.Admission, cached.Status.Admission) ||
		!slices.EqualFunc(wl.Status.AdmissionChecks, cached.Status.AdmissionChecks, updateAlike) {
		return errOutdated
	}
	return nil
}

// updateAlike reports whether two states of an admission check add the same to pods.
func updateAlike(a, b kueue.AdmissionCheckState) bool {
	return a.Name == b.Name && equality.Semantic.DeepEqual(a.PodSetUpdates, b.PodSetUpdates)
}

// areCurrent reports whether our views are what the API server has. For a stop they are where the specs are: nobody shall put
// that off by changing labels and annotations all the time.
func areCurrent(ctx context.Context, live client.Reader, job *trainjob.TrainJob, js *jobsetapi.JobSet) (bool, error) {
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

// notStarted reports whether the API server is known to have job as it is here, in what a start changes: its users shall not put
// a stop off by changing the rest all the time.
func notStarted(ctx context.Context, deps *dependencies, job *trainjob.TrainJob) bool {
	var stored trainjob.TrainJob
	err := deps.live.Get(ctx, client.ObjectKeyFromObject(job), &stored)
	field := deps.Field
	return err == nil && stored.UID == job.UID && stored.Suspended() == job.Suspended() &&
		(!field.Has(&stored.Spec) && !field.Has(&job.Spec) || field.Same(&stored.Spec, &job.Spec) && field.Time(&stored.Spec).Equal(field.Time(&job.Spec)))
}

// jobsAtATime is how many Jobs are in memory at a time: anybody may make thousands of a megabyte each, and label them.
const jobsAtATime = 10

// eachChildJob calls do for each Job of js that the API server has.
func eachChildJob(ctx context.Context, live client.Reader, js *jobsetapi.JobSet, do func(*batchv1.Job)) error {
	for more := ""; ; {
		var jobs batchv1.JobList
		err := live.List(ctx, &jobs, client.InNamespace(js.Namespace), client.MatchingLabels{jobsetapi.JobSetNameKey: js.Name},
			client.Limit(jobsAtATime), client.Continue(more))
		if err != nil {
			return fmt.Errorf("listing the Jobs of JobSet %s: %w", client.ObjectKeyFromObject(js), err)
		}
		for i := range jobs.Items {
			if state.IsControlledBy(&jobs.Items[i], js) {
				do(&jobs.Items[i])
			}
		}
		if more = jobs.Continue; more == "" {
			return nil
		}
	}
}

// eachJobNamed calls do for each Job of these names that the API server has. A few are asked for by name, however
// many others the namespace has.
func eachJobNamed(ctx context.Context, live client.Reader, namespace string, names sets.Set[string], do func(*metav1.PartialObjectMetadata)) error {
	if names.Len() > jobsAtATime {
		return eachJobOf(ctx, live, namespace, func(child *metav1.PartialObjectMetadata) {
			if names.Has(child.Name) {
				do(child)
			}
		})
	}
	for name := range names {
		child := metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "Job"}}
		err := live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &child)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("reading Job %s/%s: %w", namespace, name, err)
		}
		if err == nil {
			do(&child)
		}
	}
	return nil
}

func eachJobOf(ctx context.Context, live client.Reader, namespace string, do func(*metav1.PartialObjectMetadata)) error {
	for more := ""; ; {
		jobs := metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "JobList"}}
		if err := live.List(ctx, &jobs, client.InNamespace(namespace), client.Limit(jobsAtATime), client.Continue(more)); err != nil {
			return fmt.Errorf("listing the Jobs of namespace %s: %w", namespace, err)
		}
		for i := range jobs.Items {
			do(&jobs.Items[i])
		}
		if more = jobs.Continue; more == "" {
			return nil
		}
	}
}
