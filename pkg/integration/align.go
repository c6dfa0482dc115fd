// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/constants"
	controllerconstants "sigs.k8s.io/kueue/pkg/controller/constants"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/deactivation"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
)

// alignWithWorkload changes this view of the job, and nothing that is stored, to what its Workload says, where jobframework would
// otherwise return before it releases quota: it ignores a job without a queue label, and it writes an admission gate back that an
// admin removed from the Workload, which Kueue refuses. keepPriority does the same for the priority class.
func alignWithWorkload(ctx context.Context, j *job) result {
	wl := j.unfinishedWorkload()
	if wl == nil || !state.HoldsQuota(*wl) && wl.DeletionTimestamp.IsZero() {
		return keepPriority(ctx, j)
	}
	const gate = kueueconstants.AdmissionGatedByAnnotation
	if len(j.Annotations) > 0 && j.Annotations[gate] != wl.Annotations[gate] {
		// Not deleted: a start tests whether there are annotations.
		metav1.SetMetaDataAnnotation(&j.ObjectMeta, gate, wl.Annotations[gate])
	}
	if jobframework.QueueName(j) == "" && wl.Spec.QueueName != "" && !releasedByFollow(j, wl) {
		metav1.SetMetaDataLabel(&j.ObjectMeta, controllerconstants.QueueLabel, string(wl.Spec.QueueName))
	}
	return keepPriority(ctx, j)
}

// releasedByFollow reports whether follow releases the Workload of a job that left its queue: of one that is suspended, and whose
// Workload neither ends nor is deactivated.
func releasedByFollow(j *job, wl *kueue.Workload) bool {
	return j.alive() && j.IsSuspended() && wl.DeletionTimestamp.IsZero() && kueuelib.IsActive(wl) && !deactivation.Pending(wl)
}

// starts reports whether the job may be started next, on the admission of this Workload: what the job says counts for that.
func starts(j *job, wl *kueue.Workload) bool {
	return j.alive() && j.IsSuspended() && state.MayRun(wl) && wl.DeletionTimestamp.IsZero()
}
