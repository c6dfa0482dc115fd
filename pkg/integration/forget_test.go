// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/event"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/serving"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestWhatIsRememberedGoesWithTheJob(t *testing.T) {
	stored, _ := suspendedJob()
	r, _ := newReconciler(t, stored)
	env := r.env
	remember := func() {
		expect.NoError(t, env.Remember(t.Context(), stored, []kueue.PodSet{{}}))
		env.Recorder.Eventf(stored, nil, "Normal", "Reason", "Action", "told")
		env.Recorder.WarnOfState(stored, jobevents.ActionQueue, "NotAdmissible", "told")
		env.backoff.InVain(stored.UID, "write", "undone")
		env.inTree.First(stored.UID)
		env.trainer.First(stored.UID)
		env.trainer.Rollout.First(stored.UID)
		expect.Must(env.Runtimes.Of(t.Context(), stored))(t)
	}
	remembered := func() int {
		told := 0
		for _, t := range []*serving.Told{&env.inTree.Told, &env.trainer.Told, &env.trainer.Rollout.Told} {
			told += t.Len()
		}
		return env.Remembered.Len() + env.Recorder.Remembered() + env.backoff.Len() + told
	}
	remember()
	expect.Same(t, "Unexpected number of things that are remembered", 7, remembered())
	expect.That(t, forgetDeleted(env.forget).Delete(event.DeleteEvent{Object: stored}), "The event must pass")
	expect.Same(t, "Unexpected number of things that are remembered of a TrainJob that is gone", 0, remembered())
}
