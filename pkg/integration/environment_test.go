// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/testenv"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestOneGenerationForAReconcile(t *testing.T) {
	r, _ := newReconciler(t)
	r.env.trainer = testenv.Served(t, trainjob.Trainer21)
	env := expect.Must(r.env.now())(t)
	r.env.trainer.Set(t.Context(), trainjob.Trainer23, nil)
	expect.That(t, env.Field == patch.Of(trainjob.Trainer21) && env.Runtimes.Served == trainjob.Trainer21,
		"What began with 2.1 goes on with field %s and runtimes of %s", env.Field.Path(), env.Runtimes.Served)
}

// What works on a part of the environment goes by the view of its reconcile.
func TestPartsHaveTheViewOfTheReconcile(t *testing.T) {
	r, _ := newReconciler(t)
	env := expect.Must(r.env.now())(t)
	pods := env.pods()
	expect.That(t, pods.State == env.state && pods.State != r.env.state && pods.Field == env.Field && pods.Expectations == env.expectations,
		"The environment makes %+v, want the parts of %+v", pods, env)
	ready := env.podsReady()
	expect.That(t, ready.Client == env.client && ready.Expectations == env.expectations && ready.Kueue == env.kueue,
		"The environment makes %+v, want the parts of %+v", ready, env)
}
