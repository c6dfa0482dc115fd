// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/event"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/serving"
)

func TestWhatIsRememberedGoesWithTheJob(t *testing.T) {
	stored, _ := suspendedJob()
	r, _ := newReconciler(t, stored)
	env := r.env
	remember := func() {
		inttest.Must(t, env.Remember(t.Context(), stored, []kueue.PodSet{{}}))
		env.Recorder.Eventf(stored, nil, "Normal", "Reason", "Action", "told")
		env.Recorder.WarnOfState(stored, jobevents.ActionQueue, "NotAdmissible", "told")
		env.backoff.InVain(stored.UID, "write", "undone")
		env.inTree.First(stored.UID)
		env.trainer.First(stored.UID)
		env.trainer.Rollout.First(stored.UID)
		_, err := env.Runtimes.Of(t.Context(), stored)
		inttest.Must(t, err)
	}
	remembered := func() int {
		told := 0
		for _, t := range []*serving.Told{&env.inTree.Told, &env.trainer.Told, &env.trainer.Rollout.Told} {
			told += t.Len()
		}
		return env.Remembered.Len() + env.Recorder.Remembered() + env.backoff.Len() + told
	}
	remember()
	if got := remembered(); got != 7 {
		t.Fatalf("%d things are remembered, want 7", got)
	}
	if !forgetDeleted(env.forget).Delete(event.DeleteEvent{Object: stored}) {
		t.Error("The event must pass")
	}
	if got := remembered(); got != 0 {
		t.Errorf("%d things are remembered of a TrainJob that is gone", got)
	}
}
