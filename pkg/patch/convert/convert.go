// SPDX-License-Identifier: Apache-2.0

// Package convert turns the three ways in which TrainJobs patch their runtime into
// each other: podTemplateOverrides (Trainer 2.1), runtimePatches (2.2 and later), and
// templateOverrides, which were proposed between the two and never released.
//
// Conversions are pure. They change what they have to and carry everything else along,
// fields that nobody knows included. What the other way cannot express is an error that
// names the field; what it says with less precision is a warning. The pods that Trainer
// makes of a converted TrainJob are those that it made of the original, our part aside: a
// manifest loses it, as it is of one admission in one cluster.
//
// manifest.go converts whole manifests, convert.go and overrides.go their fields, mounts.go the
// volumes that are mounted twice.
package convert

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch/internal/overlay"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch/rules"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// DefaultOwner is the manager of what nobody is named as the owner of. It is that of
// the SDK, as in Trainer's migration guide.
const DefaultOwner = overlay.DefaultOwner

// patchesOf makes entries of the layers, and has the rules look at them.
func patchesOf(r *overlay.Reader, layers []overlay.Layer) (patches []trainjob.RuntimePatch, warnings []string, errs field.ErrorList) {
	entries, warnings, errs := overlay.Entries(layers)
	if errs = append(r.Errs, errs...); len(errs) > 0 {
		return nil, nil, errs
	}
	entries, spread := spreadMounts(entries)
	patches = trainjob.NewRuntimePatches(entries)
	told, errs := judged(rules.Create(trainjob.Trainer23, nil, &trainjob.Spec{RuntimePatches: patches}))
	if len(errs) > 0 {
		return nil, nil, errs
	}
	return patches, slices.Concat(warnings, spread, told), nil
}

// judged tells errors, of what the API server or Trainer's webhook would refuse, from fields
// that nobody knows, as in the original: the API server drops them.
func judged(verdict rules.Verdict) (warnings []string, errs field.ErrorList) {
	for _, err := range verdict.Errors {
		if err.Type == field.ErrorTypeForbidden && err.Origin != rules.OriginWebhook {
			warnings = append(warnings, err.Error())
			continue
		}
		err.Detail += "; the API server would refuse this part of what the conversion makes"
		errs = append(errs, err)
	}
	return warnings, errs
}
