// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

func TestServedTrainer(t *testing.T) {
	served := NewTrainer(NewTrainJobs(nil))
	unknown := errors.New("no generation that we know")
	served.Set(t.Context(), 0, unknown)
	if err := served.Check(nil); !errors.Is(err, unknown) {
		t.Errorf("The readiness check says %v while the generation is unknown", err)
	}
	if !served.First(types.UID("job")) || served.First(types.UID("job")) {
		t.Error("A TrainJob must be told once")
	}
	for _, generation := range []trainjob.TrainerVersion{trainjob.Trainer21, trainjob.Trainer23} {
		served.Set(t.Context(), generation, nil)
		if got, err := served.Served(); got != generation || err != nil {
			t.Errorf("Served() = %v, %v; want %v", got, err, generation)
		}
		if err := served.Check(nil); err != nil {
			t.Errorf("Not ready with %v: %v", generation, err)
		}
	}
	if !served.First(types.UID("job")) {
		t.Error("The next time it must be told again")
	}
}
