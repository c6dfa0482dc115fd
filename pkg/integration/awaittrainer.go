// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
)

// trainerSilent is how long Trainer may take no note of a start or a stop before people
// are told: its controller may be away, and no event comes then.
const trainerSilent = 30 * time.Second

// awaitTrainer looks again at a job whose start or stop Trainer has not taken
// note of, or may still undo. It tells people when that takes long. What
// Trainer did take note of is correctDrift's.
func awaitTrainer(_ context.Context, j *job) result {
	if j.ManagedExternally() {
		return result{}
	}
	js := j.jobSet()
	if taken := j.pods().MayStillResume(&j.TrainJob, js); taken > 0 {
		return result{again: taken}
	}
	if js == nil || trainerAgrees(j) || !j.manages {
		return result{}
	}
	behind := behind(j, js)
	if behind == "" {
		return result{}
	}
	if wait := time.Until(j.env.expectations.ChangedBy(&j.TrainJob).Add(trainerSilent)); wait > 0 {
		return result{again: wait}
	}
	j.env.Recorder.Warn(&j.TrainJob, jobevents.ReasonTrainerSilent, jobevents.ActionWrite, fmt.Errorf(
		"JobSet %s %s although the TrainJob says otherwise: Trainer has not taken note of it for %s; look at Trainer's controller and its log", js.Name, behind, trainerSilent))
	return result{again: trainerSilent}
}

// trainerAgrees reports whether Trainer says of the job what its spec says.
func trainerAgrees(j *job) bool {
	said := apimeta.FindStatusCondition(j.Status.Conditions, trainer.TrainJobSuspended)
	return said != nil && (said.Status == metav1.ConditionTrue) == j.IsSuspended()
}

// behind says in what a JobSet is behind its TrainJob; empty: in nothing that matters here.
func behind(j *job, js *jobsetapi.JobSet) string {
	suspended := ptr.Deref(js.Spec.Suspend, false)
	switch {
	case suspended && !j.IsSuspended():
		return "is still suspended"
	case !suspended && j.IsSuspended():
		return "still runs"
	case suspended && state.LacksGate(js, &j.TrainJob, j.env.Field):
		return "still lacks the admission gate"
	}
	return ""
}
