// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"

	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/deactivation"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
)

// awaitDeactivation stops a job whose Workload is to be deactivated, and deactivates that when the last pod is gone:
// Kueue counts nothing of it from then on. A job that runs in another cluster has no pods here.
func (j *job) awaitDeactivation(ctx context.Context) outcome {
	wl, err := state.HoldingQuota(ctx, state.Latest(j.env.state), &j.TrainJob)
	if err != nil || wl == nil || !wl.DeletionTimestamp.IsZero() || !deactivation.Pending(wl) {
		return outcome{err: err}
	}
	if !j.ManagedExternally() {
		if _, err := j.Stop(ctx, j.env.client, nil, jobframework.StopReasonWorkloadEvicted, ""); err != nil {
			return done(err)
		}
	}
	if j.IsActive() {
		again, err := j.watchStop(ctx)
		return outcome{done: true, again: again, err: err}
	}
	inactive := wl.DeepCopy()
	inactive.Spec.Active = ptr.To(false)
	delete(inactive.Annotations, deactivation.Annotation)
	err = j.env.client.Patch(ctx, inactive, client.MergeFromWithOptions(wl, client.MergeFromWithOptimisticLock{}))
	if client.IgnoreNotFound(err) != nil {
		return done(fmt.Errorf("deactivating Workload %s: %w", client.ObjectKeyFromObject(wl), err))
	}
	ctrl.LoggerFrom(ctx).Info("Deactivated the Workload of a job without pods", "reason", deactivation.Reason(wl))
	return done(nil)
}
