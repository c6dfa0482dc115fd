// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestTrainerVersionOf(t *testing.T) {
	cases := map[string]struct {
		fields   string
		unserved bool
		want     TrainerVersion
	}{
		"podTemplateOverrides":         {fields: "podTemplateOverrides: {type: array, items: {type: object}}", want: Trainer21},
		"runtimePatches":               {fields: "runtimePatches: {type: array, items: {type: object}}", want: Trainer22},
		"both":                         {fields: "podTemplateOverrides: {type: array}, runtimePatches: {type: array}", want: Trainer22},
		"neither, as Trainer 2.0":      {fields: "podSpecOverrides: {type: array}"},
		"a list whose items are bare":  {fields: "runtimePatches: {type: array, items: {}}", want: Trainer22},
		"a field of its name, deeper":  {fields: "other: {type: object, properties: {runtimePatches: {type: array}}}"},
		"only speaking of the field":   {fields: "other: {type: string, description: runtimePatches}"},
		"a schema without any of them": {fields: ""},
		"a version that is not served": {fields: "runtimePatches: {type: array}", unserved: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := TrainerVersionOf(expect.FromYAML[*apiextensionsv1.CustomResourceDefinition](t, `
metadata: {name: trainjobs.trainer.kubeflow.org}
spec: {versions: [{name: v1alpha1, served: `+strconv.FormatBool(!tc.unserved)+`, schema: {openAPIV3Schema: {properties: {spec: {properties: {`+tc.fields+`}}}}}}]}`))
			expect.That(t, got == tc.want && (err != nil) == (tc.want == 0), "TrainerVersionOf returned %d, %v; want %d", got, err, tc.want)
		})
	}
}

func TestTrainerVersionOfTheTrainerWeAreBuiltWith(t *testing.T) {
	data := expect.Must(os.ReadFile(filepath.Join(trainerDir(t), "manifests", "base", "crds", "trainer.kubeflow.org_trainjobs.yaml")))(t)
	crd := expect.FromYAML[*apiextensionsv1.CustomResourceDefinition](t, string(data))
	expect.Same(t, "Unexpected version", Trainer23, expect.Must(TrainerVersionOf(crd))(t))
}
