// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobclient"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

const (
	// longStop is how long a stopped job may keep its quota before people are told.
	longStop = 10 * time.Second

	// longLag is how long Trainer may refuse to change a job without pods before people are told.
	longLag = 30 * time.Second
)

// watchStop tells people when a stopped job takes long to be gone: the quota is its own
// until then.
func watchStop(ctx context.Context, j *job) result {
	if j.UID == "" || !j.IsSuspended() {
		return result{}
	}
	wl := j.holdingQuota()
	if wl == nil {
		return result{}
	}
	since := state.StoppedSince(wl)
	if since.IsZero() || !j.active(ctx) {
		return result{}
	}
	// What would tell of the last pod may be gone: the job looks again by itself.
	wait := recheckIn(since)
	if time.Since(since) < longStop {
		return result{again: wait}
	}
	return result{again: wait, err: tellStop(ctx, j)}
}

// tellStop names what a stop waits for: the last pods, or JobSet, which does not say that
// they are gone while something keeps it from writing its status.
func tellStop(ctx context.Context, j *job) error {
	if state.CountPods(j.childJobs()) > 0 {
		// How many is another event with each that ends.
		j.env.Recorder.Eventf(&j.TrainJob, nil, corev1.EventTypeNormal, jobevents.ReasonStopping, jobevents.ActionStop,
			"Pods of the stopped run are still terminating; the job keeps its quota and starts again only when they are gone")
		return nil
	}
	left, err := j.pods().Left(ctx, j.key)
	if err != nil {
		return err
	}
	if len(left) > 0 {
		tellPodsLeft(j, "stopped")
		return nil
	}
	if js := j.jobSet(); js != nil && state.SaysActive(js) {
		j.env.Recorder.Warn(&j.TrainJob, jobevents.ReasonStopping, jobevents.ActionStop, fmt.Errorf(
			"no pod of the stopped run is left, but JobSet %s still reports active Jobs, so the job keeps its quota: look at the JobSet's events and at the JobSet controller", js.Name))
	}
	return nil
}

// lagsLong reports whether err says that Trainer has not heard of the last pod of a job, although
// it had time enough since the job was changed.
func lagsLong(expectations *jobclient.Expectations, job *trainjob.TrainJob, err error) bool {
	return jobclient.TrainerLags(err) && time.Since(expectations.ChangedBy(job)) > longLag
}
