// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/event"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobclient"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/podsets"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/serving"
)

func TestWhatIsRememberedGoesWithTheJob(t *testing.T) {
	stored, _ := disagreeing(true, true, true, time.Now())
	stored.Spec.RuntimeRef.Name = "torch"
	r, _ := newReconciler(t, stored)
	env := r.env
	env.backoff = jobclient.NewBackoff(clock.RealClock{})
	env.Remembered = podsets.NewRemembered()
	remember := func() {
		if err := env.Remember(t.Context(), stored, []kueue.PodSet{{}}); err != nil {
			t.Fatal(err)
		}
		env.Recorder.Eventf(stored, nil, "Normal", "Reason", "Action", "told")
		env.Recorder.WarnOfState(stored, jobevents.ActionQueue, "NotAdmissible", "told")
		env.backoff.InVain(stored.UID, "write", "undone")
		env.inTree.First(stored.UID)
		env.trainer.First(stored.UID)
		env.trainer.Rollout.First(stored.UID)
		if _, err := env.Runtimes.Of(t.Context(), stored); err != nil {
			t.Fatal(err)
		}
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
