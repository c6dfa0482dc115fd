// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	batchv1 "k8s.io/api/batch/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// EndOf returns when a TrainJob ended by itself or was deleted, and what that makes of its run.
func EndOf(job *trainjob.TrainJob) (at time.Time, outcome string) {
	for condition, outcome := range map[string]string{trainer.TrainJobComplete: metrics.OutcomeUseful, trainer.TrainJobFailed: metrics.OutcomeFailed} {
		if c := apimeta.FindStatusCondition(job.Status.Conditions, condition); c != nil && c.Status == metav1.ConditionTrue {
			return c.LastTransitionTime.Time, outcome
		}
	}
	if job.DeletionTimestamp != nil {
		return job.DeletionTimestamp.Time, metrics.OutcomeDeleted
	}
	return time.Time{}, ""
}

// StartOf returns when pods of a TrainJob with this Workload began to run, zero where none has: with the
// first of its Jobs or, where these are in another cluster, with the admission.
func StartOf(job *trainjob.TrainJob, wl *kueue.Workload, jobs []batchv1.Job) time.Time {
	if job.ManagedExternally() {
		if admitted, is := since(wl, kueue.WorkloadAdmitted); is {
			return admitted
		}
		return time.Time{}
	}
	var first time.Time
	for i := range jobs {
		if at := jobs[i].Status.StartTime; at != nil && (first.IsZero() || at.Time.Before(first)) {
			first = at.Time
		}
	}
	return first
}
