// SPDX-License-Identifier: Apache-2.0

package generations

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	apiservervalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch/rules"
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
	for generation, module := range modules {
		schema := newCRD(t, module)
		for name, tc := range cases {
			t.Run(fmt.Sprintf("%s: %s", generation, name), func(t *testing.T) {
				job := random.New(0).Bare(random.Object{})
				if tc.metadata != "" {
					job["metadata"] = expect.FromJSON[random.Object](t, tc.metadata)
				}
				maps.Copy(job["spec"].(random.Object), expect.FromJSON[random.Object](t, "{"+tc.spec+"}"))
				want := strings.Contains(tc.refused, generation.String())
				refusals := schema.check(t, job)
				expect.That(t, (len(refusals) > 0) == want, "The CRD finds %q", refusals)
				errs := rules.Fields(generation, encode(t, job))
				expect.That(t, (len(errs) > 0) == want, "The rules find %v", errs.ToAggregate())
			})
		}
	}
}

// crd checks TrainJobs as an API server does that has one release's CRD.
type crd struct {
	structural *structuralschema.Structural
	validator  apiservervalidation.SchemaValidator
	cel        *cel.Validator
}

// newCRD reads the CRD that the module's release ships.
func newCRD(t *testing.T, module string) *crd {
	t.Helper()
	list := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/kubeflow/trainer/v2")
	list.Dir = module
	dir := expect.Must(list.Output())(t)
	data := expect.Must(os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "manifests/base/crds/trainer.kubeflow.org_trainjobs.yaml")))(t)
	v1 := expect.FromYAML[apiextensionsv1.CustomResourceDefinition](t, string(data))
	var schema apiextensions.JSONSchemaProps
	expect.NoError(t, apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(v1.Spec.Versions[0].Schema.OpenAPIV3Schema, &schema, nil))
	structural := expect.Must(structuralschema.NewStructural(&schema))(t)
	validator, _, err := apiservervalidation.NewSchemaValidator(&schema)
	expect.NoError(t, err)
	return &crd{structural, validator, cel.NewValidator(structural, true, celconfig.PerCallLimit)}
}

// check returns what a strict request is refused for.
func (c *crd) check(t *testing.T, job any) (refusals []string) {
	t.Helper()
	stored, refusals := c.settle(t, job)
	errs := apiservervalidation.ValidateCustomResource(nil, stored, c.validator)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, c.structural, stored)...)
	if len(errs) == 0 {
		errs, _ = c.cel.Validate(t.Context(), nil, c.structural, stored, nil, celconfig.RuntimeCELCostBudget)
	}
	for _, err := range errs {
		refusals = append(refusals, err.Error())
	}
	return refusals
}

// settle prunes and defaults as the API server does when it decodes a request.
func (c *crd) settle(t *testing.T, job any) (stored map[string]any, unknown []string) {
	t.Helper()
	expect.NoError(t, utiljson.Unmarshal(encode(t, job), &stored))
	unknown = pruning.PruneWithOptions(stored, c.structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	defaulting.PruneNonNullableNullsWithoutDefaults(stored, c.structural)
	defaulting.Default(stored, c.structural)
	return stored, unknown
}
