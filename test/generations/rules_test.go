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

// attempt is a request and what the rules say of it.
type attempt struct {
	question
	verdict rules.Verdict
}

// TestRules compares the verdicts on TrainJobs that have something wrong with them
// more often than not with those of the CRD and the webhook of each release.
func TestRules(t *testing.T) {
	for generation, module := range modules {
		t.Run(module, func(t *testing.T) {
			schema, s := newCRD(t, module), random.New(*seed)
			var attempts []attempt
			var questions []question
			for range *manifests / 4 {
				a := newAttempt(t, s, generation)
				attempts, questions = append(attempts, a), append(questions, a.question)
			}
			refused := 0
			for i, webhook := range ask(t, module, questions) {
				a := attempts[i]
				refusals := append(schema.check(t, a.Job), webhook.Errors...)
				if webhook.Failure != "" {
					refusals = append(refusals, webhook.Failure)
				}
				if len(refusals) > 0 {
					refused++
				}
				if (len(refusals) > 0) != (len(a.verdict.Errors) > 0) {
					job := encode(t, a.question)
					t.Fatalf("Attempt %d (-seed %d): Trainer finds %q, the rules find %v, in %s", i, *seed, refusals, a.verdict.Errors.ToAggregate(), job)
				}
			}
			t.Logf("%d attempts, %d of them refused (-seed %d)", len(attempts), refused, *seed)
		})
	}
}

func newAttempt(t *testing.T, s random.Source, generation trainjob.TrainerVersion) attempt {
	t.Helper()
	name := "runtimePatches"
	if generation == trainjob.Trainer21 {
		name = "podTemplateOverrides"
	}
	patches := func() []any {
		if generation == trainjob.Trainer21 {
			return s.PodTemplateOverrides()
		}
		return s.RuntimePatches(true)
	}
	a := attempt{question: question{Runtime: s.Runtime(), Validate: true}}
	spec := recoded[*trainer.TrainingRuntimeSpec](t, a.Runtime)
	// Names and images of the TrainJob itself are not what the rules are about.
	fields := random.Object{name: patches()}
	s.Damage(fields[name])
	a.Job = s.Bare(fields)
	a.verdict = rules.Create(generation, spec, ruled(t, fields))
	return a
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
