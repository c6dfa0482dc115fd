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

	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// placeChildJobs brings the child Jobs to what the job is going to be.
func placeChildJobs(ctx context.Context, j *job, next *trainjob.TrainJob) error {
	js, err := j.env.Render(ctx, next)
	if err != nil {
		return err
	}
	return placeIn(ctx, j.env.client, j.childJobs(), js)
}

// placeIn brings the suspended child Jobs to the pod templates of the rendered
// JobSet, one write for each that differs. JobSet itself only ever merges into a Job
// that exists: left alone, the Job would keep its gate and the keys of earlier flavors.
// Jobs that do not exist yet are made from the rendered template anyway.
func placeIn(ctx context.Context, c client.Client, jobs []batchv1.Job, rendered *jobsetapi.JobSet) error {
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
	if equality.Semantic.DeepEqual(child.Spec.Template, placed.Spec.Template) {
		return nil
	}
	err := c.Patch(ctx, placed, client.MergeFrom(child))
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
