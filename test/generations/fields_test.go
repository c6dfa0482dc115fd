// SPDX-License-Identifier: Apache-2.0

package generations

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch/rules"
	"github.com/kueue-trainer/kueue-trainer/pkg/releases"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/generations/random"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// TestFields asks the CRD of each release and the rules, case by case, and names the
// releases that refuse.
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
		schema := newCRD(t, generation)
		for name, tc := range cases {
			t.Run(fmt.Sprintf("%s: %s", generation, name), func(t *testing.T) {
				job := random.New(0).Bare(random.Object{})
				if tc.metadata != "" {
					job["metadata"] = expect.FromJSON[random.Object](t, tc.metadata)
				}
				maps.Copy(job["spec"].(random.Object), expect.FromJSON[random.Object](t, "{"+tc.spec+"}"))
				want := strings.Contains(tc.refused, generation.String())
				refusals := schema.refusals(t, job)
				expect.That(t, (len(refusals) > 0) == want, "The CRD finds %q", refusals)
				errs := rules.Fields(generation, encode(t, job))
				expect.That(t, (len(errs) > 0) == want, "The rules find %v", errs.ToAggregate())
			})
		}
	}
}

// crd is that of TrainJobs in one release.
type crd struct{ *releases.Schema }

func newCRD(t *testing.T, generation trainjob.TrainerVersion) crd {
	t.Helper()
	return crd{expect.Must(releases.NewSchema(generation, releases.TrainJob))(t)}
}

// refusals are what a strict request is refused for.
func (c crd) refusals(t *testing.T, job any) (texts []string) {
	t.Helper()
	_, errs := c.Check(t.Context(), encode(t, job))
	for _, err := range errs {
		texts = append(texts, err.Error())
	}
	return texts
}
