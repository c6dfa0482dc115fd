// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
)

// placeChildJobs brings the suspended child Jobs to the pod templates of the rendered
// JobSet, and has them replace a pod when that is gone, one write for each that differs. JobSet itself only ever merges into a Job
// that exists: left alone, the Job would keep its gate and the keys of earlier flavors.
// Jobs that do not exist yet are made from the rendered template anyway.
func placeChildJobs(ctx context.Context, c client.Client, jobs []batchv1.Job, rendered *jobsetapi.JobSet) error {
	templates := map[string]*corev1.PodTemplateSpec{}
	for i := range rendered.Spec.ReplicatedJobs {
		rj := &rendered.Spec.ReplicatedJobs[i]
		templates[rj.Name] = &rj.Template.Spec.Template
	}
	for i := range jobs {
		template := templates[jobs[i].Labels[jobsetapi.ReplicatedJobNameKey]]
		if template == nil || podset.JobEnded(&jobs[i]) || !ptr.Deref(jobs[i].Spec.Suspend, false) {
			continue
		}
		if err := placeChildJob(ctx, c, &jobs[i], template); err != nil {
			return err
		}
	}
	return nil
}

// placeChildJob does not guard with a resourceVersion: the values it sets are right
// whatever else changed, and the Job controller writes the status all the time.
func placeChildJob(ctx context.Context, c client.Client, child *batchv1.Job, template *corev1.PodTemplateSpec) error {
	placed := child.DeepCopy()
	podset.PlaceTemplate(&placed.Spec.Template, template)
	placed.Spec.PodReplacementPolicy = ptr.To(batchv1.Failed)
	if equality.Semantic.DeepEqual(child.Spec, placed.Spec) {
		return nil
	}
	return patchChildJob(ctx, c, child, placed)
}

// ensureReplaced has the Jobs that JobSet made since the start replace a pod when that is gone, like
// those before: whoever deletes a pod of a long grace period has the next one run beside it otherwise,
// and the one after that, on GPUs that nobody is charged for.
func (r *attempt) ensureReplaced(ctx context.Context, j *job) error {
	if !j.alive() || j.IsSuspended() || j.ManagedExternally() {
		return nil
	}
	managed, err := r.env.queues.Manages(ctx, &j.TrainJob)
	if err != nil || !managed {
		return err
	}
	jobs, err := state.ChildJobsOf(ctx, r.env.state, &j.TrainJob)
	if err != nil {
		return err
	}
	for i := range jobs {
		child := &jobs[i]
		if podset.JobEnded(child) || !child.DeletionTimestamp.IsZero() || ptr.Deref(child.Spec.PodReplacementPolicy, "") == batchv1.Failed {
			continue
		}
		replaces := child.DeepCopy()
		replaces.Spec.PodReplacementPolicy = ptr.To(batchv1.Failed)
		if err := patchChildJob(ctx, r.env.client, child, replaces); err != nil {
			return err
		}
	}
	return nil
}

func patchChildJob(ctx context.Context, c client.Client, child, changed *batchv1.Job) error {
	err := c.Patch(ctx, changed, client.MergeFrom(child))
	if apierrors.IsNotFound(err) {
		// JobSet replaces it, from the new template.
		return nil
	}
	if err != nil {
		return fmt.Errorf("placing child Job %s: %w", client.ObjectKeyFromObject(child), err)
	}
	ctrl.LoggerFrom(ctx).V(2).Info("Placed child Job", "job", klog.KObj(child))
	return nil
}
