// SPDX-License-Identifier: Apache-2.0

package podset

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apimachinery/pkg/util/json"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// WorkloadCRD is the CRD whose schema has the defaults of PodSets.
const WorkloadCRD = "workloads.kueue.x-k8s.io"

// Defaults does to PodSets what the API server does to those of a Workload it
// stores: it sets the defaults of the served schema and drops what the schema does
// not know. Kueue compares a job's PodSets with the stored ones field by field and
// takes any difference for a changed job.
type Defaults struct {
	podSet *structuralschema.Structural
}

// NewDefaults takes the schema of the given version out of the Workload CRD.
func NewDefaults(crd *apiextensionsv1.CustomResourceDefinition, version string) (*Defaults, error) {
	at := slices.IndexFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
		return v.Name == version && v.Served && v.Schema != nil && v.Schema.OpenAPIV3Schema != nil
	})
	if at < 0 {
		return nil, fmt.Errorf("CRD %s serves no version %s; this manager needs Kueue v0.19 or a later one that serves it", crd.Name, version)
	}
	items := crd.Spec.Versions[at].Schema.OpenAPIV3Schema.Properties["spec"].Properties["podSets"].Items
	if items == nil || items.Schema == nil {
		return nil, errors.New("the Workload CRD has no schema for spec.podSets")
	}
	var podSet apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(items.Schema, &podSet, nil); err != nil {
		return nil, err
	}
	structural, err := structuralschema.NewStructural(&podSet)
	if err != nil {
		return nil, fmt.Errorf("schema of spec.podSets in CRD %s: %w", crd.Name, err)
	}
	return &Defaults{podSet: structural}, nil
}

// Apply returns the PodSets as the API server would store and return them.
func (d *Defaults) Apply(podSets []kueue.PodSet) ([]kueue.PodSet, error) {
	out := make([]kueue.PodSet, len(podSets))
	for i := range podSets {
		if err := d.apply(&podSets[i], &out[i]); err != nil {
			return nil, fmt.Errorf("defaulting PodSet %q: %w", podSets[i].Name, err)
		}
	}
	return out, nil
}

// apply goes through JSON because that is what the API server defaults and prunes.
func (d *Defaults) apply(in, out *kueue.PodSet) error {
	data, err := json.Marshal(in)
	if err != nil {
		return err
	}
	var value map[string]any
	if err := json.Unmarshal(data, &value); err != nil {
		return err
	}
	defaulting.PruneNonNullableNullsWithoutDefaults(value, d.podSet)
	defaulting.Default(value, d.podSet)
	pruning.Prune(value, d.podSet, false)
	if data, err = json.Marshal(value); err != nil {
		return err
	}
	return json.Unmarshal(data, out)
}
