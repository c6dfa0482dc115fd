// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// extendCRD makes the API server keep a field of patch entries that no Go type has, as
// a later release of Trainer might bring one, or takes it out again.
func extendCRD(ctx context.Context, c client.Client, extended bool) error {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := c.Get(ctx, client.ObjectKey{Name: "trainjobs.trainer.kubeflow.org"}, crd); err != nil {
		return err
	}
	before := crd.DeepCopy()
	for i := range crd.Spec.Versions {
		spec := crd.Spec.Versions[i].Schema.OpenAPIV3Schema.Properties["spec"]
		for _, name := range []string{"podTemplateOverrides", "runtimePatches"} {
			if list, ok := spec.Properties[name]; ok {
				extend(list.Items.Schema.Properties, extended)
			}
		}
	}
	return c.Patch(ctx, crd, client.MergeFrom(before))
}

func extend(entry map[string]apiextensionsv1.JSONSchemaProps, extended bool) {
	delete(entry, "future")
	if extended {
		entry["future"] = apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr.To(true)}
	}
}
