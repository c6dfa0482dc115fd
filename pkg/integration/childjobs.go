// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// jobSet returns the JobSet that Trainer made for job, or nil: then there is nothing that
// could run.
func (e *environment) jobSet(ctx context.Context, job *trainjob.TrainJob) (*jobsetapi.JobSet, error) {
	return state.JobSetOf(ctx, e.state, job)
}

// trainerLooked reports whether Trainer may have looked at job: it freezes the runtime just before
// it makes the JobSet.
func (e *environment) trainerLooked(ctx context.Context, job *trainjob.TrainJob) bool {
	js, err := e.jobSet(ctx, job)
	return err != nil || js != nil
}

// childJobs lists the Jobs that JobSet made for job.
func (e *environment) childJobs(ctx context.Context, job *trainjob.TrainJob) ([]batchv1.Job, error) {
	js, err := e.jobSet(ctx, job)
	if err != nil || js == nil {
		return nil, err
	}
	return e.jobsOf(ctx, js)
}

func (e *environment) jobsOf(ctx context.Context, js *jobsetapi.JobSet) ([]batchv1.Job, error) {
	return state.JobsOf(ctx, e.state, js)
}

// active reports whether a pod of job is there, terminating ones included, or may
// still come because some controller has not taken note of the suspension. Quota depends on
// it: it asks the caches as they are now, for the Jobs before the JobSet that resumes them.
func (e *environment) active(ctx context.Context, job *trainjob.TrainJob) (bool, error) {
	jobs, err := e.jobsNamed(ctx, client.ObjectKeyFromObject(job))
	if err != nil || slices.ContainsFunc(jobs, hasPods) {
		return err == nil, err
	}
	js, err := state.JobSetOf(ctx, state.Latest(e.state), job)
	if err != nil || job.Finished() {
		return false, err
	}
	return e.mayStillResume(job, js) > 0 || js != nil && (!ptr.Deref(js.Spec.Suspend, false) || saysActive(js)), nil
}

// saysActive reports whether JobSet still counts Jobs with pods. It hears of the last pod
// after us, and until then Trainer's webhook refuses a change of the patches.
func saysActive(js *jobsetapi.JobSet) bool {
	return slices.ContainsFunc(js.Status.ReplicatedJobsStatus, func(rj jobsetapi.ReplicatedJobStatus) bool { return rj.Active > 0 })
}

// lacksGate reports whether the JobSet of job does not have the gate that job has.
func (e *environment) lacksGate(job *trainjob.TrainJob, js *jobsetapi.JobSet) bool {
	return slices.ContainsFunc(js.Spec.ReplicatedJobs, func(rj jobsetapi.ReplicatedJob) bool {
		return !patch.HasAdmissionGate(rj.Template.Spec.Template.Spec.SchedulingGates) && e.Field.Gates(&job.Spec, rj.Name)
	})
}

// countPods adds up the pods of job that its child Jobs know of, terminating ones included.
func (e *environment) countPods(ctx context.Context, job *trainjob.TrainJob) (int32, error) {
	jobs, err := e.childJobs(ctx, job)
	pods := int32(0)
	for i := range jobs {
		pods += jobs[i].Status.Active + ptr.Deref(jobs[i].Status.Terminating, 0)
	}
	return pods, err
}

func hasPods(j batchv1.Job) bool {
	if j.Status.Active > 0 || ptr.Deref(j.Status.Terminating, 0) > 0 {
		return true
	}
	if jobFinished(&j) {
		return false
	}
	return !ptr.Deref(j.Spec.Suspend, false) || jobResumed(&j)
}

// jobResumed reports whether the Job controller last saw the Job unsuspended: then
// pods may exist that its status does not count yet.
func jobResumed(j *batchv1.Job) bool {
	for _, c := range j.Status.Conditions {
		if c.Type == batchv1.JobSuspended {
			return c.Status != corev1.ConditionTrue
		}
	}
	return j.Status.StartTime != nil
}

func jobFinished(j *batchv1.Job) bool { return podset.JobEnded(j) }

// placeChildJobs brings the suspended child Jobs to the pod templates of the rendered
// JobSet, one write for each that differs. JobSet itself only ever merges into a Job
// that exists: left alone, the Job would keep its gate and the keys of earlier flavors.
// Jobs that do not exist yet are made from the rendered template anyway.
func (e *environment) placeChildJobs(ctx context.Context, job *trainjob.TrainJob, rendered *jobsetapi.JobSet) error {
	jobs, err := e.childJobs(ctx, job)
	if err != nil {
		return err
	}
	templates := map[string]*corev1.PodTemplateSpec{}
	for i := range rendered.Spec.ReplicatedJobs {
		rj := &rendered.Spec.ReplicatedJobs[i]
		templates[rj.Name] = &rj.Template.Spec.Template
	}
	for i := range jobs {
		template := templates[jobs[i].Labels[jobsetapi.ReplicatedJobNameKey]]
		if template == nil || jobFinished(&jobs[i]) || !ptr.Deref(jobs[i].Spec.Suspend, false) {
			continue
		}
		if err := e.placeChildJob(ctx, &jobs[i], template); err != nil {
			return err
		}
	}
	return nil
}

// placeChildJob does not guard with a resourceVersion: the values it sets are right
// whatever else changed, and the Job controller writes the status all the time.
func (e *environment) placeChildJob(ctx context.Context, child *batchv1.Job, template *corev1.PodTemplateSpec) error {
	placed := child.DeepCopy()
	podset.PlaceTemplate(&placed.Spec.Template, template)
	if equality.Semantic.DeepEqual(child.Spec.Template, placed.Spec.Template) {
		return nil
	}
	err := e.client.Patch(ctx, placed, client.MergeFrom(child))
	if apierrors.IsNotFound(err) {
		// JobSet replaces it, from the new template.
		return nil
	}
	if err != nil {
		return fmt.Errorf("placing child Job %s: %w", client.ObjectKeyFromObject(child), err)
	}
	return nil
}
