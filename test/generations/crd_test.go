// SPDX-License-Identifier: Apache-2.0

package generations

import (
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

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

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
func (c *crd) check(t *testing.T, job, old any) (refusals []string) {
	t.Helper()
	stored, refusals := c.settle(t, job)
	errs := apiservervalidation.ValidateCustomResource(nil, stored, c.validator)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, c.structural, stored)...)
	if len(errs) == 0 {
		var before any
		if old != nil {
			before, _ = c.settle(t, old)
		}
		errs, _ = c.cel.Validate(t.Context(), nil, c.structural, stored, before, celconfig.RuntimeCELCostBudget)
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
