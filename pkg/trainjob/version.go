// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// CRDName is the CRD of TrainJob, which tells one version of Trainer from another:
// all serve the same version of the API.
const CRDName = "trainjobs.trainer.kubeflow.org"

// TrainerVersion is a minor release of Trainer, as far as it matters here.
type TrainerVersion int

// Trainer versions, oldest first.
const (
	// Trainer21 has spec.podTemplateOverrides.
	Trainer21 TrainerVersion = iota + 1
	// Trainer22 has spec.runtimePatches.
	Trainer22
	// Trainer23 keeps a snapshot of the runtime, and merges resourcesPerNode into it.
	Trainer23
)

func (v TrainerVersion) String() string {
	switch v {
	case Trainer21:
		return "2.1"
	case Trainer22:
		return "2.2"
	case Trainer23:
		return "2.3"
	}
	return "unknown"
}

var (
	overridesField = []string{"spec", "podTemplateOverrides"}
	patchesField   = []string{"spec", "runtimePatches"}
	// gracePeriodField came with Trainer 2.3, which left no plainer mark in the CRD.
	gracePeriodField = append(patchesField, "trainingRuntimeSpec", "template", "spec", "replicatedJobs",
		"template", "spec", "template", "spec", "terminationGracePeriodSeconds")
)

// TrainerVersionOf tells the version of Trainer that a CRD of TrainJob comes from, by the
// API version that we use, if it is served. One newer than we know counts as the newest that
// we know.
func TrainerVersionOf(crd *apiextensionsv1.CustomResourceDefinition) (TrainerVersion, error) {
	for _, version := range crd.Spec.Versions {
		if version.Name != GVK.Version || !version.Served || version.Schema == nil {
			continue
		}
		switch schema := version.Schema.OpenAPIV3Schema; {
		case hasField(schema, gracePeriodField...):
			return Trainer23, nil
		case hasField(schema, patchesField...):
			return Trainer22, nil
		case hasField(schema, overridesField...):
			return Trainer21, nil
		}
	}
	return 0, fmt.Errorf("CRD %s serves neither spec.runtimePatches nor spec.podTemplateOverrides: install Trainer 2.1 or later", crd.Name)
}

// hasField looks for a field, in the items where there are lists on the way.
func hasField(schema *apiextensionsv1.JSONSchemaProps, path ...string) bool {
	for _, name := range path {
		if schema != nil && schema.Items != nil {
			schema = schema.Items.Schema
		}
		if schema == nil {
			return false
		}
		field, ok := schema.Properties[name]
		if !ok {
			return false
		}
		schema = &field
	}
	return true
}
