// SPDX-License-Identifier: Apache-2.0

// Package generations asks releases of Trainer whether this repository is right about them.
package generations

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/validation/field"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch/provenance"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch/rules"
	"github.com/kueue-trainer/kueue-trainer/pkg/releases"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/attempt"
	"github.com/kueue-trainer/kueue-trainer/test/generations/random"
	"github.com/kueue-trainer/kueue-trainer/test/generations/removal"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// question and answer are those of command oracle, which is in a module of its own.
type question struct {
	Runtime  any  `json:"runtime"`
	Job      any  `json:"job"`
	Validate bool `json:"validate,omitempty"`
}

type answer struct {
	JobSet  json.RawMessage `json:"jobSet"`
	Errors  []string        `json:"errors"`
	Failure string          `json:"failure"`
}

func (a answer) refusals() []string {
	if a.Failure != "" {
		return append(a.Errors, a.Failure)
	}
	return a.Errors
}

// modules are those that the local control plane builds the releases with, and command oracle too.
var modules = map[trainjob.TrainerVersion]string{
	trainjob.Trainer21: "trainer-2.1", trainjob.Trainer22: "trainer-2.2", trainjob.Trainer23: "",
}

const oracle = "github.com/kueue-trainer/kueue-trainer/test/generations/oracle"

// binaries has one for each release, by its name.
var binaries string

func TestMain(m *testing.M) {
	code := 1
	err := attempt.To(func() {
		binaries = attempt.Must(os.MkdirTemp("", "generations"))
		defer os.RemoveAll(binaries)
		for generation, module := range modules {
			build := exec.Command("go", "build", "-C", filepath.Join("..", "localcluster", module), "-o", filepath.Join(binaries, generation.String()), oracle)
			out, err := build.CombinedOutput()
			attempt.Succeed(err, "Building the oracle of Trainer %s: %s", generation, out)
		}
		code = m.Run()
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

func ask(t *testing.T, generation trainjob.TrainerVersion, questions []question) []answer {
	t.Helper()
	answers := make([]answer, len(questions))
	var group errgroup.Group
	size := max(1, (len(questions)+runtime.NumCPU()-1)/runtime.NumCPU())
	for start := 0; start < len(questions); start += size {
		end := min(start+size, len(questions))
		group.Go(func() error {
			return attempt.To(func() { fill(answers[start:end], generation, questions[start:end]) })
		})
	}
	expect.NoError(t, group.Wait())
	return answers
}

func fill(answers []answer, generation trainjob.TrainerVersion, questions []question) {
	var in bytes.Buffer
	encoder := json.NewEncoder(&in)
	for _, q := range questions {
		attempt.Succeed(encoder.Encode(q))
	}
	cmd := exec.Command(filepath.Join(binaries, generation.String()))
	cmd.Stdin, cmd.Stderr = &in, os.Stderr
	cmd.Env = append(os.Environ(), "GOGC=1000") // Most of an answer's time is garbage collection otherwise.
	decoder := json.NewDecoder(bytes.NewReader(attempt.Must(cmd.Output())))
	for i := range answers {
		attempt.Succeed(decoder.Decode(&answers[i]), "reading answer %d of %d", i, len(answers))
	}
}

// TestProvenance takes each source away in turn, as the test of package provenance does with Trainer's newest library.
func TestProvenance(t *testing.T) {
	for generation := range modules {
		t.Run(generation.String(), func(t *testing.T) {
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
	in := provenance.Input{Runtime: recoded[*trainer.TrainingRuntimeSpec](t, s.Runtime()), Job: recoded[*trainjob.TrainJob](t, s.Job(patchesOf(s, generation)))}
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

// TestRules compares the verdicts on TrainJobs, most of them wrong, with those of CRD and webhook of each release.
func TestRules(t *testing.T) {
	for generation := range modules {
		t.Run(generation.String(), func(t *testing.T) {
			schema, s := crd(t, generation), random.New(*seed)
			var verdicts []rules.Verdict
			var questions []question
			for range *manifests / 4 {
				// Names and images of the TrainJob itself are not what the rules are about.
				fields := patchesOf(s, generation)
				for _, patches := range fields {
					s.Damage(patches)
				}
				q := question{Runtime: s.Runtime(), Job: s.Bare(fields), Validate: true}
				verdicts = append(verdicts, rules.Create(generation, recoded[*trainer.TrainingRuntimeSpec](t, q.Runtime), ruled(t, fields)))
				questions = append(questions, q)
			}
			refused := 0
			for i, webhook := range ask(t, generation, questions) {
				found := append(refusals(t, schema, questions[i].Job), webhook.refusals()...)
				if len(found) > 0 {
					refused++
				}
				if errs := verdicts[i].Errors; (len(found) > 0) != (len(errs) > 0) {
					t.Fatalf("Attempt %d (-seed %d): Trainer finds %q, the rules find %v, in %s", i, *seed, found, errs.ToAggregate(), encode(t, questions[i]))
				}
			}
			t.Logf("%d attempts, %d of them refused (-seed %d)", len(questions), refused, *seed)
		})
	}
}

// patchesOf is a spec with patches as a release has them.
func patchesOf(s random.Source, generation trainjob.TrainerVersion) random.Object {
	if generation == trainjob.Trainer21 {
		return random.Object{"podTemplateOverrides": s.PodTemplateOverrides()}
	}
	return random.Object{"runtimePatches": s.RuntimePatches(true)}
}

// ruled is what the rules look at in a spec.
func ruled(t *testing.T, spec random.Object) *trainjob.Spec {
	t.Helper()
	return &trainjob.Spec{
		PodTemplateOverrides: recoded[[]trainjob.RuntimePatch](t, spec["podTemplateOverrides"]),
		RuntimePatches:       recoded[[]trainjob.RuntimePatch](t, spec["runtimePatches"]),
	}
}

func recoded[T any](t *testing.T, value any) T {
	t.Helper()
	return expect.FromJSON[T](t, expect.JSON(t, value))
}

func encode(t *testing.T, value any) json.RawMessage {
	t.Helper()
	return json.RawMessage(expect.JSON(t, value))
}

// TestFields asks the CRD of each release and the rules, case by case, and names the releases that refuse.
func TestFields(t *testing.T) {
	const all = "2.1 2.2 2.3"
	long := "a123456789012345678901234567890123456789012345678901234567890123"
	cases := map[string]struct {
		// metadata and spec are what a TrainJob has besides the least.
		metadata, spec string
		refused        string
	}{
		"the least":                       {},
		"a name that begins with a digit": {metadata: `{"name":"1a"}`, refused: all},
		"a name that is too long":         {metadata: `{"name":"` + long + `"}`, refused: all},
		"no name of a runtime":            {spec: `"runtimeRef":{"kind":"TrainingRuntime"}`, refused: all},
		"a text for true":                 {spec: `"suspend":"true"`, refused: all},
		"a text for a number":             {spec: `"trainer":{"numNodes":"2"}`, refused: all},
		"a number for a text":             {spec: `"trainer":{"image":2}`, refused: all},
		"an object for a list":            {spec: `"trainer":{"args":{}}`, refused: all},
		"a text for an object":            {spec: `"trainer":"x"`, refused: all},
		"a field that nobody has":         {spec: `"replicas":2`, refused: all},
		"one further down":                {spec: `"trainer":{"gpus":2}`, refused: all},
		"another manager":                 {spec: `"managedBy":"me"`, refused: all},
		"MultiKueue":                      {spec: `"managedBy":"kueue.x-k8s.io/multikueue"`},
		"a number of processes":           {spec: `"trainer":{"numProcPerNode":2}`},
		"automatic processes":             {spec: `"trainer":{"numProcPerNode":"auto"}`, refused: "2.2 2.3"},
		"amounts as numbers":              {spec: `"trainer":{"resourcesPerNode":{"limits":{"nvidia.com/gpu":8,"cpu":"1"}}}`},
		"overrides":                       {spec: `"podTemplateOverrides":[]`, refused: "2.2 2.3"},
		"proposed overrides":              {spec: `"templateOverrides":[]`, refused: all},
		"labels of the JobSet":            {spec: `"labels":{"a":"b"}`, refused: "2.2 2.3"},
		"patches":                         {spec: `"runtimePatches":[]`, refused: "2.1"},
		"a deadline":                      {spec: `"activeDeadlineSeconds":60`, refused: "2.1"},
		"no time at all":                  {spec: `"activeDeadlineSeconds":0`, refused: all},
		"a path of a data set":            {spec: `"initializer":{"dataset":{"storageUri":"/data"}}`, refused: "2.3"},
		"a path of a model":               {spec: `"initializer":{"model":{"storageUri":"model"}}`, refused: "2.3"},
		"a URI":                           {spec: `"initializer":{"model":{"storageUri":"hf://a/b"}}`},
		"nulls":                           {spec: `"trainer":null,"initializer":null,"suspend":null`},
	}
	for generation := range modules {
		schema := crd(t, generation)
		for name, tc := range cases {
			t.Run(fmt.Sprintf("%s: %s", generation, name), func(t *testing.T) {
				job := random.New(0).Bare(random.Object{})
				if tc.metadata != "" {
					job["metadata"] = expect.FromJSON[random.Object](t, tc.metadata)
				}
				maps.Copy(job["spec"].(random.Object), expect.FromJSON[random.Object](t, "{"+tc.spec+"}"))
				want := strings.Contains(tc.refused, generation.String())
				found := refusals(t, schema, job)
				expect.That(t, (len(found) > 0) == want, "The CRD finds %q", found)
				errs := rules.Fields(generation, encode(t, job))
				expect.That(t, (len(errs) > 0) == want, "The rules find %v", errs.ToAggregate())
			})
		}
	}
}

// crd is that of TrainJobs in one release.
func crd(t *testing.T, generation trainjob.TrainerVersion) *releases.Schema {
	t.Helper()
	return expect.Must(releases.NewSchema(generation, releases.TrainJob))(t)
}

// refusals are what a CRD finds wrong with a TrainJob.
func refusals(t *testing.T, crd *releases.Schema, job any) []string {
	t.Helper()
	_, errs := crd.Check(t.Context(), encode(t, job))
	return expect.Each(errs, func(err *field.Error) string { return err.Error() })
}
