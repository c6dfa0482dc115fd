// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/constants"
	controllerconstants "sigs.k8s.io/kueue/pkg/controller/constants"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/deactivation"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
)

// alignWithWorkload changes this view of the job, and nothing that is stored, to what its Workload says, where jobframework would
// otherwise return before it releases quota: it ignores a job without a queue label, and it writes an admission gate back that an
// admin removed from the Workload, which Kueue refuses. keepPriority does the same for the priority class.
func alignWithWorkload(ctx context.Context, j *job) result {
	wl := j.unfinishedWorkload()
	if wl == nil || !state.HoldsQuota(wl) && wl.DeletionTimestamp.IsZero() {
		return keepPriority(ctx, j)
	}
	const gate = kueueconstants.AdmissionGatedByAnnotation
	if len(j.Annotations) > 0 && j.Annotations[gate] != wl.Annotations[gate] {
		// Not deleted: a start tests whether there are annotations.
		metav1.SetMetaDataAnnotation(&j.ObjectMeta, gate, wl.Annotations[gate])
	}
	// Of a suspended job that left its queue, follow releases a Workload that neither ends nor is deactivated.
	followed := j.phase() == phaseSuspended && wl.DeletionTimestamp.IsZero() && kueuelib.IsActive(wl) && !deactivation.Pending(wl)
	if jobframework.QueueName(j) == "" && wl.Spec.QueueName != "" && !followed {
		metav1.SetMetaDataLabel(&j.ObjectMeta, controllerconstants.QueueLabel, string(wl.Spec.QueueName))
	}
	return keepPriority(ctx, j)
}

// keepPriority has jobframework leave the priority of a job alone whose label names a class that is not
// there. It looks for that before it does anything else with a Workload, so that it could not even stop
// the job. Only this view of the job is changed, and not for a start, which is for what the job says:
// that fails, and the quota goes back.
func keepPriority(ctx context.Context, j *job) result {
	class := jobframework.WorkloadPriorityClassName(j.Object())
	if class == "" {
		return result{}
	}
	missing := j.deps.client.Get(ctx, client.ObjectKey{Name: class}, &kueue.WorkloadPriorityClass{})
	if !apierrors.IsNotFound(missing) {
		return ofError(missing)
	}
	wl := j.unfinishedWorkload()
	if wl == nil || j.phase() == phaseSuspended && state.MayRun(wl) && wl.DeletionTimestamp.IsZero() {
		return result{}
	}
	delete(j.Labels, controllerconstants.WorkloadPriorityClassLabel)
	if kueuelib.HasWorkloadPriorityClass(wl) {
		j.Labels[controllerconstants.WorkloadPriorityClassLabel] = wl.Spec.PriorityClassRef.Name
	}
	if jobframework.WorkloadPriorityClassName(j.Object()) != class {
		tellClassMissing(j, missing)
		return result{again: longestClass}
	}
	return result{}
}

// tellClassMissing tells the user of a priority class that is not there.
func tellClassMissing(j *job, missing error) {
	j.warn(jobevents.ReasonNoPriority, jobevents.ActionQueue,
		"keeps the priority that it has, if any: %v; ask an admin to create it, or name another one", missing)
}
