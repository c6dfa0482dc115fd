// SPDX-License-Identifier: Apache-2.0

package world

import (
	"slices"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestGeneration(t *testing.T) {
	// Each holds the fields of the TrainJob spec that matter, nested as they come.
	cases := map[string][]string{
		Trainer21: {"podTemplateOverrides", "nodeSelector"},
		Trainer22: {"runtimePatches", "nodeSelector"},
		Trainer23: {"runtimePatches", "terminationGracePeriodSeconds"},
		"":        {"podSpecOverrides"},
	}
	for want, fields := range cases {
		got, err := generation(crdWith(fields))
		expect.That(t, got == want && (err != nil) == (want == ""), "a CRD with %v is taken for %q, %v; want %q", fields, got, err, want)
	}
}

// crdWith nests the fields into each other, the first outermost.
func crdWith(fields []string) *apiextensionsv1.CustomResourceDefinition {
	schema := apiextensionsv1.JSONSchemaProps{Description: "may speak of podTemplateOverrides"}
	for _, name := range slices.Backward(fields) {
		schema = apiextensionsv1.JSONSchemaProps{Properties: map[string]apiextensionsv1.JSONSchemaProps{name: schema}}
	}
	return &apiextensionsv1.CustomResourceDefinition{Spec: apiextensionsv1.CustomResourceDefinitionSpec{
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{
			{Name: "v1alpha1", Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &schema}},
		},
	}}
}
