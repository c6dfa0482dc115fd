// SPDX-License-Identifier: Apache-2.0

// Package overlay reads the ways in which TrainJobs patch their runtime as layers (read.go),
// merges layers as Trainer 2.1 does (layer.go, merge.go), and makes entries of the newest
// Trainer of them (entry.go, rendered.go).
package overlay

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// Rendered returns what the newest Trainer's library renders as Trainer 2.1 does the
// overrides, whoever they belong to. It need not be what an API server takes.
func Rendered(overrides []trainjob.PodTemplateOverride) ([]trainjob.RuntimePatch, error) {
	r := &Reader{}
	entries, _, errs := Entries(r.Layers(overrides, DefaultOwner))
	if errs = append(r.Errs, errs...); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	return Encode(entries)
}

// DefaultOwner is the manager of what nobody is named as the owner of. It is that of
// the SDK, as in Trainer's migration guide.
const DefaultOwner = "trainer.kubeflow.org/kubeflow-sdk"

// Layers reads overrides that are decoded already.
func (r *Reader) Layers(overrides []trainjob.PodTemplateOverride, owner string) []Layer {
	data, err := json.Marshal(overrides)
	if err != nil {
		r.Errs = append(r.Errs, field.InternalError(field.NewPath("spec", "podTemplateOverrides"), err))
	}
	return r.PodTemplateOverrides(field.NewPath("spec", "podTemplateOverrides"), r.Decode(field.NewPath("spec", "podTemplateOverrides"), data), owner)
}
