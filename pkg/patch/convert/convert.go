// SPDX-License-Identifier: Apache-2.0

// Package convert turns the three ways in which TrainJobs patch their runtime into
// each other: podTemplateOverrides (Trainer 2.1), runtimePatches (2.2 and later), and
// templateOverrides, which were proposed between the two and never released.
//
// Conversions are pure. They change what they have to and carry everything else along,
// fields that nobody knows included. What the other way cannot express is an error that
// names the field; what it says with less precision is a warning. The pods that Trainer
// makes of a converted TrainJob are those that it made of the original.
package convert

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// DefaultOwner is the manager of what nobody is named as the owner of. It is that of
// the SDK, as in Trainer's migration guide.
const DefaultOwner = "trainer.kubeflow.org/kubeflow-sdk"

// ToRuntimePatches collapses the overrides into one entry of owner: overrides for
// several jobs are spread over them, and of several for one job the later wins, as in
// Trainer 2.1. There are no entries when there are no overrides.
func ToRuntimePatches(overrides []trainjob.PodTemplateOverride, owner string) (patches []trainjob.RuntimePatch, warnings []string, errs field.ErrorList) {
	r := &reader{}
	path := field.NewPath("spec", "podTemplateOverrides")
	data, err := json.Marshal(overrides)
	if err != nil {
		return nil, nil, field.ErrorList{field.InternalError(path, err)}
	}
	layers := r.podTemplateOverrides(path, r.decode(path, data), owner)
	entries, warnings, errs := entriesOf(layers)
	if errs = append(r.errs, errs...); len(errs) > 0 {
		return nil, nil, errs
	}
	for _, e := range entries {
		p, err := e.runtimePatch()
		if err != nil {
			return nil, nil, field.ErrorList{field.InternalError(path, err)}
		}
		patches = append(patches, p)
	}
	return patches, warnings, nil
}
