// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"time"

	"k8s.io/utils/ptr"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
)

// rolloutPatience is how long a JobSet may go without showing our part before it is made again.
const rolloutPatience = 30 * time.Second

// awaitRollout tells the user of an admitted job why it is not started, and has its JobSet
// made again when it stays as it is: where the releases render a runtime differently,
// JobSet lets the newer Trainer change nothing of it.
func awaitRollout(ctx context.Context, j *job) error {
	field := j.env.Field.Path()
	j.env.Recorder.Note(j.UID, jobevents.ReasonTrainerBehind)
	if j.env.trainer.Rollout.First(j.UID) {
		j.env.Recorder.Resolve(j.UID, jobevents.ReasonTrainerBehind)
		j.env.Recorder.Warn(&j.TrainJob, jobevents.ReasonTrainerBehind, jobevents.ActionStart, fmt.Errorf(
			"admitted, and starts when the running Trainer is seen to read %s, which the TrainJob CRD has now: the controller of another release may still be at work", field))
	}
	js := j.jobSet()
	if js == nil || !js.DeletionTimestamp.IsZero() || !ptr.Deref(js.Spec.Suspend, false) {
		return nil
	}
	since := j.env.expectations.WroteBy(&j.TrainJob)
	if js.CreationTimestamp.After(since) {
		since = js.CreationTimestamp.Time
	}
	if time.Since(since) < rolloutPatience {
		return nil
	}
	return renewJobSet(ctx, j, js, fmt.Sprintf("Trainer has not brought %s to JobSet %s, whose runtime may have been edited since it was made", field, js.Name))
}
