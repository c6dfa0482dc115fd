// SPDX-License-Identifier: Apache-2.0

package installed

import (
	"os"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// TestGenerationWithoutTheCRD is for a user who may not read it: OpenAPI, as the API server makes it of the CRD, tells.
func TestGenerationWithoutTheCRD(t *testing.T) {
	generation := func(answers map[string]any) (trainjob.TrainerVersion, error) {
		return Generation(t.Context(), expect.Must(Connect(&rest.Config{Host: kit.Unreadable(t, answers)}))(t))
	}
	for _, release := range []trainjob.TrainerVersion{trainjob.Trainer21, trainjob.Trainer22, trainjob.Trainer23} {
		data := expect.Must(os.ReadFile("../../releases/" + release.String() + "/trainjobs.json"))(t)
		crd := expect.FromYAML[*apiextensionsv1.CustomResourceDefinition](t,
			"{spec: {group: trainer.kubeflow.org, names: {plural: trainjobs, kind: TrainJob, listKind: TrainJobList}, scope: Namespaced, versions: [{name: v1alpha1, served: true}]}}")
		schema := expect.FromJSON[*apiextensionsv1.JSONSchemaProps](t, string(data))
		crd.Spec.Versions[0].Schema = &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: schema}
		published := expect.Must(builder.BuildOpenAPIV3(crd, "v1alpha1", builder.Options{}))(t)
		got, err := generation(map[string]any{"/openapi/v3/apis/trainer.kubeflow.org/v1alpha1": published})
		expect.That(t, got == release && err == nil, "Trainer %s is taken for %s, %v", release, got, err)
	}
	_, err := generation(map[string]any{})
	expect.That(t, apierrors.IsForbidden(err), "What may not be read at all is not told so: %v", err)
}
