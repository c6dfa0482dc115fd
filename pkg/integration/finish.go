// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
)

// finish prepares the end of a finished job for Kueue: its quota is its own until its last
// pod is gone, and a failed job cannot come back. Then jobframework
// finishes the Workload.
func (j *job) finish(ctx context.Context) outcome {
	held, err := j.holdFailed(ctx)
	if err != nil || !held {
		return done(err)
	}
	if over, err := j.over(ctx); err != nil || over {
		if over {
			j.env.forget(j.UID)
		}
		return done(err)
	}
	if accounted, err := j.accountedEnd(ctx); err != nil || !accounted {
		return done(err)
	}
	if !j.IsActive() {
		j.letQuotaGo(ctx)
		return outcome{}
	}
	since := j.finishedSince()
	if time.Since(since) < longStop {
		return lookAgain(recheckIn(since))
	}
	pods, err := j.env.pods().Left(ctx, j.key)
	if err == nil && len(pods) > 0 {
		j.tellPodsLeft("finished")
	}
	return outcome{done: true, again: recheckIn(since), err: err}
}

// holdFailed suspends a failed job and brings our entry back to the gate, and reports
// whether that is done. Trainer takes a TrainJob for failed only as long as its JobSet is:
// once that is deleted, by its TTL or by a user, Trainer makes another one and runs the job
// again, on quota that is somebody else's by then.
func (j *job) holdFailed(ctx context.Context) (bool, error) {
	if !apimeta.IsStatusConditionTrue(j.Status.Conditions, trainer.TrainJobFailed) || j.ManagedExternally() {
		return true, nil
	}
	if managed, err := j.env.queues.Manages(ctx, &j.TrainJob); err != nil || !managed {
		return true, err
	}
	if !j.IsSuspended() {
		if stopped, err := j.stopEnded(ctx); err != nil || stopped {
			return false, err
		}
		// Whether Trainer is about to make the next JobSet by what it saw before is for the next look.
		if err := j.suspendNow(ctx, j.env.client); err != nil {
			return false, err
		}
	}
	if !j.env.Field.HoldsGate(&j.Spec) && !j.IsActive() {
		if err := j.gate(ctx, j.env.client); err != nil {
			return false, err
		}
	}
	// A write brings the status of now.
	j.keepFailed()
	return true, nil
}

// finishedSince returns when Trainer reported the end of the job.
func (j *job) finishedSince() time.Time {
	for _, condition := range []string{trainer.TrainJobComplete, trainer.TrainJobFailed} {
		if c := apimeta.FindStatusCondition(j.Status.Conditions, condition); c != nil {
			return c.LastTransitionTime.Time
		}
	}
	return time.Now()
}

// tellPodsLeft tells the user that pods keep the quota of a job that is over, without which ones:
// that would be another event with each that ends.
func (j *job) tellPodsLeft(what string) {
	j.env.Recorder.Eventf(&j.TrainJob, nil, corev1.EventTypeNormal, jobevents.ReasonStopping, jobevents.ActionStop,
		"The job has %s, but pods of it are still there; it keeps its quota until they are gone", what)
}

// keepFailed has a job that failed once stay failed: Trainer forgets it with the JobSet.
func (j *job) keepFailed() {
	if failed := apimeta.FindStatusCondition(j.Status.Conditions, trainer.TrainJobFailed); failed != nil && failed.Status == metav1.ConditionTrue {
		j.env.memory.sawFailed(&j.TrainJob, *failed)
	} else if failed := j.env.memory.failure(&j.TrainJob); failed != nil {
		apimeta.SetStatusCondition(&j.Status.Conditions, *failed)
	}
}

// ensureEnded is stopEnded for a job that Trainer does not take for failed any more.
func (r *attempt) ensureEnded(ctx context.Context, j *job) error {
	if !j.alive() || j.IsSuspended() {
		return nil
	}
	_, err := j.stopEnded(ctx)
	return err
}

// stopEnded suspends a job that runs again after its end, and reports whether it does: a
// failed one whose JobSet was deleted, which a user has resumed. Its pods would stay at the
// gate for ever.
func (j *job) stopEnded(ctx context.Context) (bool, error) {
	wl, err := j.endedWorkload(ctx)
	if err != nil || wl == nil {
		return false, err
	}
	if err := j.suspend(ctx, j.env.client, false); err != nil {
		return true, err
	}
	if !j.TrainJob.Finished() {
		j.measureStop(ctx, metrics.StopNotAdmitted)
	}
	j.env.Recorder.Warn(&j.TrainJob, jobevents.ReasonEnded, jobevents.ActionStop, fmt.Errorf(
		"the job has ended and its quota is given back (Workload %s is finished); to run it again, delete it and create it again", wl.Name))
	return true, nil
}
