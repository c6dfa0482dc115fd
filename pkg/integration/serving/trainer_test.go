// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestServedTrainer(t *testing.T) {
	served := NewTrainer(NewTrainJobs(nil))
	unknown := errors.New("no generation that we know")
	served.Set(t.Context(), 0, unknown)
	err := served.Check(nil)
	expect.That(t, errors.Is(err, unknown), "The readiness check says %v while the generation is unknown", err)
	expect.That(t, served.First(types.UID("job")) && !served.First(types.UID("job")), "A TrainJob must be told once")
	for _, generation := range []trainjob.TrainerVersion{trainjob.Trainer21, trainjob.Trainer23} {
		served.Set(t.Context(), generation, nil)
		expect.Same(t, "Unexpected Served", generation, expect.Must(served.Served())(t))
		expect.NoError(t, served.Check(nil))
	}
	expect.That(t, served.First(types.UID("job")), "The next time it must be told again")
}
