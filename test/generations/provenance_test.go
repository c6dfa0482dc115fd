// SPDX-License-Identifier: Apache-2.0

package generations

import (
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch/provenance"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/generations/random"
	"github.com/kueue-trainer/kueue-trainer/test/generations/removal"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// TestProvenance takes each source away in turn, as the test of package provenance does
// with Trainer's library of our own go.mod.
func TestProvenance(t *testing.T) {
	for generation, module := range modules {
		t.Run(module, func(t *testing.T) {
			s := random.New(*seed)
			var removals [][]removal.Removal
			var questions []question
			for range *manifests / 100 {
				in := newInput(t, s, generation)
				all := append([]removal.Removal{{Input: in}}, removal.All(in)...)
				for _, r := range all {
					questions = append(questions, asked(t, r.Input))
				}
				removals = append(removals, all)
			}
			answers := ask(t, generation, questions)
			checked := 0
			for i, all := range removals {
				fields := explain(t, all[0].Input, answers[0])
				for j, r := range all[1:] {
					n, err := removal.Check(fields, r.Source, explain(t, r.Input, answers[j+1]))
					if checked += n; err != nil {
						t.Fatalf("TrainJob %d: %v (-seed %d)", i, err, *seed)
					}
				}
				answers = answers[len(all):]
			}
			t.Logf("%d fields of %d TrainJobs (-seed %d)", checked, len(removals), *seed)
		})
	}
}

func newInput(t *testing.T, s random.Source, generation trainjob.TrainerVersion) provenance.Input {
	t.Helper()
	in := provenance.Input{
		Runtime: recoded[*trainer.TrainingRuntimeSpec](t, s.Runtime()),
		Job:     recoded[*trainjob.TrainJob](t, s.Job(patchesOf(s, generation))),
	}
	if generation == trainjob.Trainer21 {
		metadata := s.Metadata()
		in.Labels, in.Annotations = recoded[map[string]string](t, metadata["labels"]), recoded[map[string]string](t, metadata["annotations"])
	}
	return in
}

// asked puts an input together again.
func asked(t *testing.T, in provenance.Input) question {
	t.Helper()
	job := recoded[random.Object](t, in.Job)
	spec := job["spec"].(random.Object)
	spec["labels"], spec["annotations"] = in.Labels, in.Annotations
	return question{Runtime: in.Runtime, Job: job}
}

func explain(t *testing.T, in provenance.Input, a answer) []provenance.Field {
	t.Helper()
	return expect.Must(provenance.Explain(in, jobSet[*jobsetapi.JobSet](t, a)))(t)
}
