// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/ledger"
	"github.com/kueue-trainer/kueue-trainer/pkg/placeholder"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// freeWorkloads leaves no Workload of a TrainJob that only the manager could end, and none
// that would be admitted for a TrainJob that nobody starts.
func (u *uninstall) freeWorkloads(ctx context.Context) error {
	jobs, err := u.trainJobs(ctx)
	if err != nil {
		return err
	}
	var workloads kueue.WorkloadList
	if err := u.client.List(ctx, &workloads); meta.IsNoMatchError(err) {
		// Kueue is gone already.
		return nil
	} else if err != nil {
		return fmt.Errorf("listing Workloads: %w", err)
	}
	var failures error
	for i := range workloads.Items {
		if wl := &workloads.Items[i]; ledger.OfTrainJob(wl) {
			failures = errors.Join(failures, u.freeWorkload(ctx, wl, jobs[metav1.GetControllerOfNoCopy(wl).UID]))
		}
	}
	return failures
}

func (u *uninstall) trainJobs(ctx context.Context) (map[types.UID]*trainjob.TrainJob, error) {
	var list trainjob.List
	if err := u.client.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("listing TrainJobs: %w", err)
	}
	jobs := map[types.UID]*trainjob.TrainJob{}
	for i := range list.Items {
		jobs[list.Items[i].UID] = &list.Items[i]
	}
	return jobs, nil
}

// freeWorkload takes the finalizers off, and deletes the Workload of a TrainJob that waits, when
// the last pod of that is gone. The job is nil when it is gone.
func (u *uninstall) freeWorkload(ctx context.Context, wl *kueue.Workload, job *trainjob.TrainJob) error {
	waits := job != nil && !job.Finished() && job.Suspended()
	if waits {
		if err := u.jobPodsGone(ctx, job); err != nil {
			return err
		}
	}
	key := client.ObjectKeyFromObject(wl)
	before := wl.DeepCopy()
	if placeholder.Release(wl) {
		err := u.client.Patch(ctx, wl, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("taking the finalizers off Workload %s: %w", key, err)
		}
	}
	switch {
	case waits:
		if err := u.client.Delete(ctx, wl, client.Preconditions{UID: ptr.To(wl.UID)}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting Workload %s of a TrainJob that waits: %w", key, err)
		}
		fmt.Fprintf(u.out, "trainjob %s/%s: out of its queue, Workload %s deleted\n", job.Namespace, job.Name, wl.Name)
	case job != nil && !job.Finished():
		fmt.Fprintf(u.out, "trainjob %s/%s: runs on, and its Workload %s keeps the quota until it is deleted\n", job.Namespace, job.Name, wl.Name)
	}
	return nil
}

// jobPodsGone waits until the pods of a TrainJob have ended that was evicted a moment ago.
func (u *uninstall) jobPodsGone(ctx context.Context, job *trainjob.TrainJob) error {
	var pods corev1.PodList
	err := wait.PollUntilContextTimeout(ctx, time.Second, goneWithin, true, func(ctx context.Context) (bool, error) {
		err := u.client.List(ctx, &pods, client.InNamespace(job.Namespace), client.MatchingLabels{jobsetapi.JobSetNameKey: job.Name})
		if err != nil {
			return false, err
		}
		jobs, err := u.childJobs(ctx, job)
		pods.Items = slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool {
			owner := metav1.GetControllerOfNoCopy(&pod)
			return owner == nil || !jobs[owner.UID] || podset.PodEnded(&pod) || pod.Spec.NodeName == ""
		})
		return len(pods.Items) == 0, err
	})
	if errors.Is(err, context.DeadlineExceeded) && len(pods.Items) > 0 {
		return fmt.Errorf("TrainJob %s/%s is suspended, and its pod %s does not end: look at it, and run this again", job.Namespace, job.Name, pods.Items[0].Name)
	}
	return err
}

// childJobs returns the UIDs of the Jobs that the JobSet of a TrainJob controls: anybody may make pods with its labels.
func (u *uninstall) childJobs(ctx context.Context, job *trainjob.TrainJob) (map[types.UID]bool, error) {
	var js jobsetapi.JobSet
	if err := u.client.Get(ctx, client.ObjectKeyFromObject(job), &js); err != nil || !metav1.IsControlledBy(&js, job) {
		return nil, client.IgnoreNotFound(err)
	}
	var list batchv1.JobList
	if err := u.client.List(ctx, &list, client.InNamespace(job.Namespace), client.MatchingLabels{jobsetapi.JobSetNameKey: js.Name}); err != nil {
		return nil, fmt.Errorf("listing the Jobs of JobSet %s: %w", client.ObjectKeyFromObject(&js), err)
	}
	jobs := map[types.UID]bool{}
	for i := range list.Items {
		jobs[list.Items[i].UID] = metav1.IsControlledBy(&list.Items[i], &js)
	}
	return jobs, nil
}

// deleteRemainders deletes the Workloads that keep the quota of pods which MultiKueue left: nobody
// else would, when the pods are gone.
func (u *uninstall) deleteRemainders(ctx context.Context) error {
	var list kueue.WorkloadList
	err := u.client.List(ctx, &list, client.HasLabels{placeholder.Label})
	if meta.IsNoMatchError(err) || apierrors.IsForbidden(err) {
		// Kueue is gone already, or the user has been told.
		return nil
	}
	if err != nil {
		return fmt.Errorf("listing the Workloads of pods that MultiKueue left: %w", err)
	}
	var failures error
	for i := range list.Items {
		wl := &list.Items[i]
		if err := u.client.Delete(ctx, wl, client.Preconditions{UID: &wl.UID}); client.IgnoreNotFound(err) != nil {
			failures = errors.Join(failures, fmt.Errorf("deleting Workload %s: %w", client.ObjectKeyFromObject(wl), err))
			continue
		}
		fmt.Fprintf(u.out, "workload %s/%s: deleted; pods of TrainJob %s may be left that use its quota\n", wl.Namespace, wl.Name, wl.Labels[placeholder.Label])
	}
	return failures
}
