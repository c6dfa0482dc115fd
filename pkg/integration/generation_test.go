// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/types"

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
