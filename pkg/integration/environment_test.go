// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/testenv"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

func TestOneGenerationForAReconcile(t *testing.T) {
	r, _ := newReconciler(t)
	r.env.trainer = testenv.Served(t, trainjob.Trainer21)
	env, err := r.env.now()
	inttest.Must(t, err)
	r.env.trainer.Set(t.Context(), trainjob.Trainer23, nil)
	if env.Field != patch.Of(trainjob.Trainer21) || env.Runtimes.Served != trainjob.Trainer21 {
		t.Errorf("What began with 2.1 goes on with field %s and runtimes of %s", env.Field.Path(), env.Runtimes.Served)
	}
}

// What works on a part of the environment goes by the view of its reconcile.
func TestPartsHaveTheViewOfTheReconcile(t *testing.T) {
	r, _ := newReconciler(t)
	env, err := r.env.now()
	inttest.Must(t, err)
	pods := env.pods()
	if pods.State != env.state || pods.State == r.env.state || pods.Field != env.Field || pods.Expectations != env.expectations {
		t.Errorf("The environment makes %+v, want the parts of %+v", pods, env)
	}
	if ready := env.podsReady(); ready.Client != env.client || ready.Expectations != env.expectations || ready.Kueue != env.kueue {
		t.Errorf("The environment makes %+v, want the parts of %+v", ready, env)
	}
}
