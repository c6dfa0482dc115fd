// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// trainJobsOf maps a runtime to the TrainJobs that name it and wait: one that is missing may
// be why they do, and where Trainer freezes none an edit changes what they ask for. What
// runs is what was admitted.
func (e *environment) trainJobsOf(ctx context.Context, runtime client.Object) []reconcile.Request {
	var jobs trainjob.List
	if err := e.client.List(ctx, &jobs, client.InNamespace(runtime.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing the TrainJobs of a runtime", "runtime", client.ObjectKeyFromObject(runtime))
		return nil
	}
	var requests []reconcile.Request
	for i := range jobs.Items {
		if job := &jobs.Items[i]; names(job, runtime) && job.Suspended() && !job.Finished() {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(job)})
		}
	}
	return requests
}

// names reports whether a runtime is the one that job names.
func names(job *trainjob.TrainJob, runtime client.Object) bool {
	ref := job.Spec.RuntimeRef
	kind := trainer.TrainingRuntimeKind
	if runtime.GetNamespace() == "" {
		kind = trainer.ClusterTrainingRuntimeKind
	}
	return ref.Name == runtime.GetName() && ptr.Deref(ref.Kind, trainer.ClusterTrainingRuntimeKind) == kind
}

// trainerLooked returns what reports whether Trainer may have looked at a job, as far as is known
// now: it freezes the runtime just before it makes the JobSet.
func trainerLooked(now state.Reader) func(context.Context, *trainjob.TrainJob) bool {
	return func(ctx context.Context, job *trainjob.TrainJob) bool {
		js, err := state.JobSetOf(ctx, now, job)
		return err != nil || js != nil
	}
}
