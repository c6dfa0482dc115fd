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
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/handback"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/ledger"
	"github.com/kueue-trainer/kueue-trainer/pkg/placeholder"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// freeWorkloads leaves no Workload of a TrainJob that only the manager could end, and none
// that would be admitted for a TrainJob that nobody starts.
func (u *uninstall) freeWorkloads(ctx context.Context) error {
	var list trainjob.List
	if err := u.client.List(ctx, &list); err != nil && !meta.IsNoMatchError(err) {
		return fmt.Errorf("listing TrainJobs: %w", err)
	}
	jobs := map[types.UID]*trainjob.TrainJob{}
	for i := range list.Items {
		jobs[list.Items[i].UID] = &list.Items[i]
	}
	var workloads kueue.WorkloadList
	if err := u.client.List(ctx, &workloads); meta.IsNoMatchError(err) {
		// Kueue is gone already.
		return nil
	} else if err != nil {
		return fmt.Errorf("listing Workloads: %w", err)
	}
	left := slices.DeleteFunc(workloads.Items, func(wl kueue.Workload) bool { return !ledger.OfTrainJob(&wl) })
	var failures error
	// Those without pods come first: some may have pods for ever, as those of a lost node.
	for _, patience := range []time.Duration{0, goneWithin} {
		until := time.Now().Add(patience)
		failures = nil
		left = slices.DeleteFunc(left, func(wl kueue.Workload) bool {
			err := u.freeWorkload(ctx, wl.DeepCopy(), jobs[metav1.GetControllerOfNoCopy(&wl).UID], until)
			failures = errors.Join(failures, err)
			return err == nil
		})
	}
	return failures
}

// freeWorkload takes the finalizers off, and deletes the Workload of a TrainJob that waits, or that has ended and whose Workload
// nobody finishes now, when the last pod of that is gone, if it goes until a time. The job is nil when it is gone.
func (u *uninstall) freeWorkload(ctx context.Context, wl *kueue.Workload, job *trainjob.TrainJob, until time.Time) error {
	ended := job != nil && job.Finished() && !kueuelib.IsFinished(wl)
	waits := job != nil && !job.Finished() && job.Suspended()
	if ended || waits {
		if err := u.jobPodsGone(ctx, job, until); err != nil {
			return err
		}
	}
	key := client.ObjectKeyFromObject(wl)
	err := kueuelib.Patch(ctx, u.client, wl, func() (bool, error) { return placeholder.Release(wl), nil }, kueuelib.WithRetryOnConflict())
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("taking the finalizers off Workload %s: %w", key, err)
	}
	switch {
	case ended || waits:
		if err := u.client.Delete(ctx, wl, client.Preconditions{UID: ptr.To(wl.UID)}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting Workload %s of a TrainJob that waits or has ended: %w", key, err)
		}
		what := "out of its queue"
		if ended {
			what = "has ended"
		}
		fmt.Fprintf(u.out, "trainjob %s/%s: %s, Workload %s deleted\n", job.Namespace, job.Name, what, wl.Name)
	case job != nil && !job.Finished():
		fmt.Fprintf(u.out, "trainjob %s/%s: runs on, and its Workload %s keeps the quota until it is deleted\n", job.Namespace, job.Name, wl.Name)
	}
	return nil
}

// jobPodsGone waits until the pods of a TrainJob have ended that was evicted, or ended, a moment ago.
func (u *uninstall) jobPodsGone(ctx context.Context, job *trainjob.TrainJob, until time.Time) error {
	over := fmt.Sprintf("TrainJob %s/%s is over or suspended", job.Namespace, job.Name)
	labelled := []client.ListOption{client.InNamespace(job.Namespace), client.MatchingLabels{jobsetapi.JobSetNameKey: job.Name}}
	return podsGone(ctx, over, until, func(ctx context.Context) ([]corev1.Pod, error) {
		js, err := handback.JobSetOf(ctx, u.client, job)
		if err != nil || js == nil {
			return nil, err
		}
		var children batchv1.JobList
		var pods corev1.PodList
		if err := errors.Join(u.client.List(ctx, &children, labelled...), u.client.List(ctx, &pods, labelled...)); err != nil {
			return nil, fmt.Errorf("listing the Jobs and pods of JobSet %s: %w", client.ObjectKeyFromObject(js), err)
		}
		// Anybody may make pods with these labels.
		return slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool {
			return pod.Spec.NodeName == "" || !slices.ContainsFunc(children.Items, func(child batchv1.Job) bool {
				return state.IsControlledBy(&child, js) && state.IsControlledBy(&pod, &child)
			})
		}), nil
	})
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
