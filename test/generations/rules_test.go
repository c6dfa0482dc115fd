// SPDX-License-Identifier: Apache-2.0

package generations

import (
	"encoding/json"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch/rules"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/generations/random"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// TestRules compares the verdicts on TrainJobs that have something wrong with them
// more often than not with those of the CRD and the webhook of each release.
func TestRules(t *testing.T) {
	for generation, module := range modules {
		t.Run(module, func(t *testing.T) {
			schema, s := newCRD(t, generation), random.New(*seed)
			var verdicts []rules.Verdict
			var questions []question
			for range *manifests / 4 {
				// Names and images of the TrainJob itself are not what the rules are about.
				fields := patchesOf(s, generation)
				s.Damage(fields[fieldOf(generation)])
				q := question{Runtime: s.Runtime(), Job: s.Bare(fields), Validate: true}
				verdicts = append(verdicts, rules.Create(generation, recoded[*trainer.TrainingRuntimeSpec](t, q.Runtime), ruled(t, fields)))
				questions = append(questions, q)
			}
			refused := 0
			for i, webhook := range ask(t, generation, questions) {
				refusals := append(schema.refusals(t, questions[i].Job), webhook.refusals()...)
				if len(refusals) > 0 {
					refused++
				}
				if errs := verdicts[i].Errors; (len(refusals) > 0) != (len(errs) > 0) {
					t.Fatalf("Attempt %d (-seed %d): Trainer finds %q, the rules find %v, in %s", i, *seed, refusals, errs.ToAggregate(), encode(t, questions[i]))
				}
			}
			t.Logf("%d attempts, %d of them refused (-seed %d)", len(questions), refused, *seed)
		})
	}
}

// patchesOf is a spec with patches as a release has them.
func patchesOf(s random.Source, generation trainjob.TrainerVersion) random.Object {
	if generation == trainjob.Trainer21 {
		return random.Object{fieldOf(generation): s.PodTemplateOverrides()}
	}
	return random.Object{fieldOf(generation): s.RuntimePatches(true)}
}

func fieldOf(generation trainjob.TrainerVersion) string {
	if generation == trainjob.Trainer21 {
		return "podTemplateOverrides"
	}
	return "runtimePatches"
}

// ruled is what the rules look at in a spec.
func ruled(t *testing.T, spec random.Object) *trainjob.Spec {
	t.Helper()
	return &trainjob.Spec{
		PodTemplateOverrides: recoded[[]trainjob.RuntimePatch](t, spec["podTemplateOverrides"]),
		RuntimePatches:       recoded[[]trainjob.RuntimePatch](t, spec["runtimePatches"]),
	}
}

// recoded is a value as another type.
func recoded[T any](t *testing.T, value any) T {
	t.Helper()
	return expect.FromJSON[T](t, expect.JSON(t, value))
}

func encode(t *testing.T, value any) json.RawMessage {
	t.Helper()
	return json.RawMessage(expect.JSON(t, value))
}
