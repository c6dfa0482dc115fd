// SPDX-License-Identifier: Apache-2.0

// Package overlay reads the ways in which TrainJobs patch their runtime as layers (read.go),
// merges layers as Trainer 2.1 does (layer.go, merge.go), and makes entries of the newest
// Trainer of them (entry.go, rendered.go).
package overlay

import (
	"maps"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// DefaultOwner is the manager of what nobody is named as the owner of. It is that of
// the SDK, as in Trainer's migration guide.
const DefaultOwner = "trainer.kubeflow.org/kubeflow-sdk"

// Rendered returns what the newest Trainer's library renders as Trainer 2.1 does the
// overrides, whoever they belong to. It need not be what an API server takes. Trainer 2.1 makes
// something of overrides for some job, and of their metadata labels and annotations. Its CRD and its
// webhook take the rest as well, so a TrainJob that has it is there and has to be described;
// conversion, whose users can fix what they convert, refuses it.
func Rendered(overrides []trainjob.RuntimePatch) ([]trainjob.RuntimePatch, error) {
	r, layers := &Reader{}, []Layer{}
	for i, o := range overrides {
		path := field.NewPath("spec", "podTemplateOverrides").Index(i)
		fields := r.Object(path, o.Fields(), "targetJobs", "metadata", "spec")
		if metadata, ok := fields["metadata"].(Object); ok {
			maps.DeleteFunc(metadata, func(key string, _ any) bool { return key != "labels" && key != "annotations" })
		}
		if len(o.TargetJobs) > 0 {
			layers = append(layers, r.override(path, fields, DefaultOwner, false)...)
		}
	}
	entries, _, errs := Entries(layers)
	if errs = append(r.Errs, errs...); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	return trainjob.NewRuntimePatches(entries), nil
}
