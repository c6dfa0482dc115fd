// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
)

// excess says in what the JobSet of the job, and the Jobs that it made, ask for more than wl
// holds quota for, by a rule of package podset; empty: in nothing.
func excess(j *job, wl *kueue.Workload, rule func(*jobsetapi.JobSet, []batchv1.Job, []kueue.PodSet, []kueue.ReclaimablePod) string) string {
	js := j.jobSet()
	if js == nil || !js.DeletionTimestamp.IsZero() {
		return ""
	}
	return rule(js, j.childJobs(), wl.Spec.PodSets, wl.Status.ReclaimablePods)
}

// excessNow is excess by what the API server has.
func excessNow(ctx context.Context, j *job, wl *kueue.Workload) (string, error) {
	var js jobsetapi.JobSet
	if err := j.env.live.Get(ctx, client.ObjectKeyFromObject(&j.TrainJob), &js); err != nil {
		return "", client.IgnoreNotFound(err)
	}
	if !js.DeletionTimestamp.IsZero() || !metav1.IsControlledBy(&js, &j.TrainJob) {
		return "", nil
	}
	var jobs batchv1.JobList
	if err := j.env.live.List(ctx, &jobs, client.InNamespace(j.Namespace), client.MatchingLabels{jobsetapi.JobSetNameKey: j.Name}); err != nil {
		return "", fmt.Errorf("listing the Jobs of JobSet %s: %w", j.Name, err)
	}
	made := slices.DeleteFunc(jobs.Items, func(child batchv1.Job) bool { return !metav1.IsControlledBy(&child, &js) })
	return podset.Excess(&js, made, wl.Spec.PodSets, wl.Status.ReclaimablePods), nil
}

// requeueExceeding releases the quota of a job whose JobSet asks for more, so that the job queues
// for what it really is. What was remembered of its runtime is read again: it is not what
// Trainer made the JobSet of.
func requeueExceeding(ctx context.Context, j *job, wl *kueue.Workload, excess string) error {
	if _, err := j.env.Runtimes.SnapshotTaken(ctx, &j.TrainJob); err != nil {
		return err
	}
	return requeue(ctx, j, wl, fmt.Sprintf("JobSet %s asks for more than the job was admitted for: %s. The job queues for that", j.Name, excess))
}

// startable returns an error where the JobSet that would be started asks for more than the
// job was admitted for. Where that is what Trainer makes of the job now, the job queues for
// it; else the JobSet is an old one, or was changed, and is replaced.
func startable(ctx context.Context, j *job, wl *kueue.Workload) error {
	excess := excess(j, wl, podset.Unstartable)
	if excess == "" {
		return nil
	}
	if _, err := j.env.Runtimes.SnapshotTaken(ctx, &j.TrainJob); err != nil {
		return err
	}
	podSets, err := j.env.PodSets(ctx, &j.TrainJob)
	if err != nil {
		return err
	}
	if podset.SameResources(podSets, wl.Spec.PodSets) {
		j.decision.excess = excess
		return errOutdated
	}
	if err := requeueExceeding(ctx, j, wl, excess); err != nil {
		return err
	}
	return errOutdated
}

// renewEvery is how often a JobSet that asks for too much is replaced. One that is younger
// was made so on purpose, by somebody's webhook say, and would be again.
const renewEvery = time.Minute

// renewExceeding replaces a JobSet that asks for more than Trainer would make of its TrainJob.
// Where that was done already, the job gives its quota back, and waits longer each time.
func renewExceeding(ctx context.Context, j *job) error {
	js := j.jobSet()
	if js == nil {
		return nil
	}
	why := fmt.Sprintf("JobSet %s asks for more than its TrainJob: %s", js.Name, j.decision.excess)
	if time.Since(js.CreationTimestamp.Time) > renewEvery {
		return renewJobSet(ctx, j, js, why)
	}
	wl := j.holdingQuota()
	if wl == nil {
		return nil
	}
	admitted := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadAdmitted)
	if admitted == nil {
		return nil
	}
	return releaseQuota(ctx, j, wl, why, time.Since(admitted.LastTransitionTime.Time)).err
}
