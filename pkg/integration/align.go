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

// alignWithWorkload has this view of the job say what its Workload says, where jobframework would else end its look before it
// lets quota go: it ignores a job whose queue label is gone, and would bring an admission gate back that an admin took off the Workload,
// which Kueue refuses. keepPriority does so with the priority class.
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
	if jobframework.QueueName(j) == "" && wl.Spec.QueueName != "" && !mayQueue(j, wl) {
		metav1.SetMetaDataLabel(&j.ObjectMeta, controllerconstants.QueueLabel, string(wl.Spec.QueueName))
	}
	return keepPriority(ctx, j)
}

// mayQueue reports whether the job waits for what its Workload has yet to get: follow lets that go for its queue.
func mayQueue(j *job, wl *kueue.Workload) bool {
	return j.alive() && j.IsSuspended() && wl.DeletionTimestamp.IsZero() && kueuelib.IsActive(wl) && !deactivation.Pending(wl)
}

// starts reports whether the job may be started next, on the admission of this Workload: what the job says counts for that.
func starts(j *job, wl *kueue.Workload) bool {
	return j.alive() && j.IsSuspended() && state.MayRun(wl) && wl.DeletionTimestamp.IsZero()
}
