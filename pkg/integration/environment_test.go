// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/podsets"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/serving"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

func TestOneGenerationForAReconcile(t *testing.T) {
	served := serving.NewTrainer(serving.NewTrainJobs(nil))
	served.Set(t.Context(), trainjob.Trainer21, nil)
	env, err := (&environment{state: state.FromCache(nil), trainer: served, Describer: &podsets.Describer{Runtimes: trainjob.NewRuntimes(nil, nil)}}).now()
	if err != nil {
		t.Fatal(err)
	}
	served.Set(t.Context(), trainjob.Trainer23, nil)
	if env.Field != patch.Of(trainjob.Trainer21) || env.Runtimes.Served != trainjob.Trainer21 {
		t.Errorf("What began with 2.1 goes on with field %s and runtimes of %s", env.Field.Path(), env.Runtimes.Served)
	}
}

// What works on a part of the environment goes by the view of its reconcile.
func TestPartsHaveTheViewOfTheReconcile(t *testing.T) {
	first := newEnvironmentOn(t)
	env, err := first.now()
	if err != nil {
		t.Fatal(err)
	}
	pods := env.pods()
	if pods.State != env.state || pods.State == first.state || pods.Field != env.Field || pods.Expectations != env.expectations {
		t.Errorf("The environment makes %+v, want the parts of %+v", pods, env)
	}
	if ready := env.podsReady(); ready.Client != env.client || ready.Expectations != env.expectations || ready.Kueue != env.kueue {
		t.Errorf("The environment makes %+v, want the parts of %+v", ready, env)
	}
}
