// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/deactivation"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/podsets"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/queues"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
)

// retryRoute is how often a job of MultiKueue is looked at whose queue leads to no other cluster: of
// queues and their checks no event comes here.
const retryRoute = time.Minute

// unfit reports whether err says that a job could not use quota, whatever the cluster has:
// people have to change the TrainJob, its runtime or its queue.
func unfit(err error) bool {
	return errors.Is(err, podset.ErrCannotRun) || errors.Is(err, patch.ErrInvalidPatches) || errors.Is(err, queues.ErrNoOtherCluster)
}

// dropUnfit takes the Workload of a job that waits and could not run: the webhook saw it as
// something else, or was away. PodSets tells the user, and keeps another from being made.
// A job whose runtime is gone for a moment keeps its place in the queue, but no quota.
func dropUnfit(ctx context.Context, j *job, wl *kueue.Workload, why error) result {
	lost := podsets.RuntimeMissing(why) && kueuelib.HasQuotaReservation(wl)
	if !unfit(why) && !lost || !kueuelib.IsActive(wl) || deactivation.Pending(wl) {
		// jobframework asks again and reports it.
		return result{}
	}
	j.env.Recorder.Warn(&j.TrainJob, jobevents.ReasonNotDescribed, jobevents.ActionDescribe, why)
	return done(deleteWorkload(ctx, j, wl))
}
