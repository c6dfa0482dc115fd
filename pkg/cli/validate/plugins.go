// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"context"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// remedies are for what Trainer's library only says is wrong.
var remedies = map[string]string{
	"spec.runtimeRef":  ": use a runtime that has it, or remove what asks for it",
	"spec.trainer.env": ": remove them, Trainer sets them",
}

// plugins asks those of the newest Trainer's library. What an older release may let pass
// is doubtful there.
func (c *checker) plugins(ctx context.Context, job *trainjob.TrainJob, runtime *trainer.TrainingRuntimeSpec, patches []trainjob.RuntimePatch) (errs, doubts field.ErrorList) {
	for _, err := range c.validator.Create(ctx, job, runtime, patches) {
		switch {
		case strings.HasPrefix(err.Field, "spec.runtimePatches"):
			// The rules have said what there is to say of the patches, and where exactly.
			continue
		case strings.HasSuffix(err.Field, "priorityClassName"):
			// Volcano's plugin looks for a PriorityClass in a cluster.
			continue
		}
		// Whole objects in Go's notation help nobody.
		err.BadValue = field.OmitValueType{}
		err.Detail += remedies[err.Field]
		if c.refuses(err, runtime) {
			errs = append(errs, err)
			continue
		}
		err.Detail += "; Trainer " + newest.String() + " refuses it"
		doubts = append(doubts, err)
	}
	return errs, doubts
}

// refuses reports whether the checker's release, too, refuses what the newest one does.
// Trainer 2.2 looks for no mounts of initializers and at no variables of MPI's, and 2.1 looks at
// variables only where numProcPerNode is set.
func (c *checker) refuses(err *field.Error, runtime *trainer.TrainingRuntimeSpec) bool {
	switch c.generation {
	case trainjob.Trainer21:
		return !strings.Contains(err.Detail, "volumeMount") && err.Field != "spec.trainer.env"
	case trainjob.Trainer22:
		ofMPI := err.Field == "spec.trainer.env" && runtime.MLPolicy != nil && runtime.MLPolicy.MPI != nil
		return !strings.Contains(err.Detail, "volumeMount") && !ofMPI
	}
	return true
}
