// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"time"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/serving"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// rolloutPatience is how long a JobSet may go without showing our part before it is made again.
const rolloutPatience = 30 * time.Second

// checkRollout returns ErrRollingOut while it is open whether the running Trainer reads our field. It
// asks caches alone, and not even those once there was an answer: a JobSet that shows our
// part, whichever TrainJob it is of. With Trainer 2.3 a snapshot of the job's runtime is
// one as well, for the JobSets that a newer Trainer cannot change. A job that another
// controller runs, as MultiKueue does in another cluster, does not depend on this Trainer.
func (e *environment) checkRollout(ctx context.Context, job *trainjob.TrainJob) error {
	why := e.trainer.Rollout.State()
	if why == serving.RolloutComplete || job.ManagedExternally() {
		return nil
	}
	this, other, err := e.fieldsShown(ctx)
	if err != nil {
		return err
	}
	if !this && (why == serving.RolloutUnderWay || other) {
		taken, err := e.snapshotTaken(ctx, job)
		if err != nil {
			return err
		}
		if taken.IsZero() {
			return serving.ErrRollingOut
		}
	}
	e.trainer.Rollout.Complete(e.Field)
	return nil
}

// fieldsShown reports whether there are JobSets with our part out of our field, and out of another.
func (e *environment) fieldsShown(ctx context.Context) (this, other bool, err error) {
	var list jobsetapi.JobSetList
	if err := e.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return false, false, fmt.Errorf("listing the JobSets, to see what Trainer reads: %w", err)
	}
	for i := range list.Items {
		if state.ControllerOfKind(&list.Items[i], trainjob.GVK.Kind) == nil {
			continue
		}
		switch podset.FieldOf(&list.Items[i]) {
		case nil:
		case e.Field:
			this = true
		default:
			other = true
		}
	}
	return this, other, nil
}

func (e *environment) snapshotTaken(ctx context.Context, job *trainjob.TrainJob) (time.Time, error) {
	if e.Runtimes.Served < trainjob.Trainer23 {
		return time.Time{}, nil
	}
	return e.Runtimes.SnapshotTaken(ctx, job)
}

// awaitRollout tells the user of an admitted job why it is not started, and has its JobSet
// made again when it stays as it is: where the releases render a runtime differently,
// JobSet lets the newer Trainer change nothing of it.
func (r *attempt) awaitRollout(ctx context.Context, j *job) error {
	field := r.env.Field.Path()
	if r.env.trainer.Rollout.First(j.UID) {
		r.env.Recorder.Resolve(j.UID, jobevents.ReasonTrainerBehind)
		r.env.Recorder.Warn(&j.TrainJob, jobevents.ReasonTrainerBehind, jobevents.ActionStart, fmt.Errorf(
			"admitted, and starts when the running Trainer is seen to read %s, which the TrainJob CRD has now: the controller of another release may still be at work", field))
	}
	js, err := r.env.jobSet(ctx, &j.TrainJob)
	if err != nil || js == nil || !js.DeletionTimestamp.IsZero() || !ptr.Deref(js.Spec.Suspend, false) {
		return err
	}
	since := r.env.expectations.WroteBy(&j.TrainJob)
	if js.CreationTimestamp.After(since) {
		since = js.CreationTimestamp.Time
	}
	if time.Since(since) < rolloutPatience {
		return nil
	}
	return r.renewJobSet(ctx, j, js, fmt.Sprintf("Trainer has not brought %s to JobSet %s, whose runtime may have been edited since it was made", field, js.Name))
}
