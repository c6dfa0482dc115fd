// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

func TestServedTrainer(t *testing.T) {
	served := &servedTrainer{all: &allTrainJobs{}}
	unknown := errors.New("no generation that we know")
	served.set(t.Context(), 0, unknown)
	if err := served.check(nil); !errors.Is(err, unknown) {
		t.Errorf("The readiness check says %v while the generation is unknown", err)
	}
	if !served.first(types.UID("job")) || served.first(types.UID("job")) {
		t.Error("A TrainJob must be told once")
	}
	for _, generation := range []trainjob.Generation{trainjob.Trainer21, trainjob.Trainer23} {
		served.set(t.Context(), generation, nil)
		if got, err := served.served(); got != generation || err != nil {
			t.Errorf("served() = %v, %v; want %v", got, err, generation)
		}
		if err := served.check(nil); err != nil {
			t.Errorf("Not ready with %v: %v", generation, err)
		}
	}
	if !served.first(types.UID("job")) {
		t.Error("The next time it must be told again")
	}
}

func TestOneGenerationForAReconcile(t *testing.T) {
	served := &servedTrainer{all: &allTrainJobs{}}
	served.set(t.Context(), trainjob.Trainer21, nil)
	env, err := (&environment{trainer: served, runtimes: trainjob.NewRuntimes(nil, nil)}).now()
	if err != nil {
		t.Fatal(err)
	}
	served.set(t.Context(), trainjob.Trainer23, nil)
	if env.field != patch.Of(trainjob.Trainer21) || env.runtimes.Served != trainjob.Trainer21 {
		t.Errorf("What began with 2.1 goes on with field %s and runtimes of %s", env.field.Path(), env.runtimes.Served)
	}
}
