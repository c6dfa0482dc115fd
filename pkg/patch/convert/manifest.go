// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch/internal/overlay"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// unservedVersions are the version that Trainer's RuntimePatches guide shows, and that of
// TrainJobs before the first release of Trainer 2. Every release serves v1alpha1 only.
var unservedVersions = []string{"trainer.kubeflow.org/v2alpha1", "kubeflow.org/v2alpha1"}

// manifest is a TrainJob with only those parts taken out of their bytes that matter here.
type manifest struct {
	fields map[string]json.RawMessage
	spec   map[string]json.RawMessage
}

var (
	specPath    = field.NewPath("spec")
	patchesPath = specPath.Child("runtimePatches")
	trainerPath = specPath.Child("trainer")
	// olderFields are those of Trainer 2.1 and of the proposal that became runtimePatches.
	olderFields = []string{"podTemplateOverrides", "templateOverrides", "jobTemplateOverrides", "labels", "annotations"}
	// oldestFields are those that went with Trainer 2.0 or before it, and the remedy.
	oldestFields = map[string]string{
		"podSpecOverrides": "it is of Trainer 2.0 and not converted: write it as podTemplateOverrides, whose items have targetJobs " +
			"and, under spec, all else of an item; or remove it",
		"datasetConfig": "it is from before Trainer 2.0: write it as initializer.dataset, or remove it",
		"modelConfig":   "it is from before Trainer 2.0: write it as initializer.model, or remove it",
	}
)

// ManifestToRuntimePatches converts a TrainJob in JSON for Trainer 2.2 and later.
// Overrides without an owner become those of owner, and ours are left out with a warning.
// A TrainJob that has nothing to convert comes back as it is, except for an apiVersion that
// no release serves; what else releases differ in is told all the same.
func ManifestToRuntimePatches(data []byte, owner string) (converted []byte, warnings []string, errs field.ErrorList) {
	m, warnings, errs := readManifest(data)
	if len(errs) > 0 {
		return nil, nil, errs
	}
	r := &overlay.Reader{}
	if !m.has("runtimePatches") { // What has them was written for a newer Trainer.
		fields, told := m.trainer(r)
		if _, ok := fields["numProcPerNode"].(string); ok {
			r.Errs = append(r.Errs, field.Invalid(trainerPath.Child("numProcPerNode"), fields["numProcPerNode"],
				"Trainer takes a number only since 2.2: set one, or remove the field, which means auto"))
		}
		warnings = append(warnings, told...)
	}
	if !m.has(olderFields...) {
		return m.encode(warnings, r.Errs)
	}
	if owner == trainjob.Manager {
		r.Errs = append(r.Errs, field.Invalid(field.NewPath("owner"), owner,
			"it owns what kueue-trainer writes and takes away again: name another owner"))
	}
	if m.has("runtimePatches") {
		r.Errs = append(r.Errs, bothGenerations())
	}
	patches, warned, errs := patchesOf(r, m.layers(r, owner))
	for _, name := range olderFields {
		delete(m.spec, name)
	}
	m.set("runtimePatches", patches)
	return m.encode(slices.Concat(warnings, r.Left, warned), errs)
}

func bothGenerations() *field.Error {
	return field.Forbidden(patchesPath,
		"no release has it beside the fields of older ones, so their order is not known: convert it by hand, or remove one of the two")
}

// layers reads all that patches the runtime, the weakest first: labels and annotations of
// a TrainJob patch the JobSet, which no override of Trainer 2.1 does.
func (m *manifest) layers(r *overlay.Reader, owner string) []overlay.Layer {
	fields := overlay.Object{}
	for _, name := range olderFields {
		fields[name] = m.decoded(name)
	}
	var layers []overlay.Layer
	if metadata := r.LabelsAndAnnotations(specPath, fields); len(metadata) > 0 {
		layers = append(layers, overlay.Layer{Path: specPath, Manager: owner, Metadata: metadata})
	}
	return slices.Concat(layers,
		r.JobTemplateOverrides(specPath.Child("jobTemplateOverrides"), fields["jobTemplateOverrides"]),
		r.PodTemplateOverrides(specPath.Child("podTemplateOverrides"), fields["podTemplateOverrides"], owner),
		r.TemplateOverrides(specPath.Child("templateOverrides"), fields["templateOverrides"]))
}

// trainer returns spec.trainer, and tells that releases differ in resourcesPerNode, whichever way a
// TrainJob goes.
func (m *manifest) trainer(r *overlay.Reader) (fields overlay.Object, warnings []string) {
	fields = r.Anything(trainerPath, m.decoded("trainer"))
	if fields["resourcesPerNode"] != nil {
		warnings = append(warnings, fmt.Sprintf("%s: up to Trainer 2.2 it replaces the resources of the runtime's container, "+
			"since 2.3 it is merged into them: name every resource that the runtime does", trainerPath.Child("resourcesPerNode")))
	}
	return fields, warnings
}

// ManifestToPodTemplateOverrides converts a TrainJob in JSON for Trainer 2.1. Our entry is
// left out, with a warning.
func ManifestToPodTemplateOverrides(data []byte) (converted []byte, warnings []string, errs field.ErrorList) {
	m, warnings, errs := readManifest(data)
	if len(errs) > 0 {
		return nil, nil, errs
	}
	r := &overlay.Reader{}
	if !m.has(olderFields...) { // What has them was written for Trainer 2.1.
		_, told := m.trainer(r)
		warnings = append(warnings, told...)
	}
	if !m.has("runtimePatches", "activeDeadlineSeconds") {
		return m.encode(warnings, r.Errs)
	}
	if m.has("activeDeadlineSeconds") {
		r.Errs = append(r.Errs, field.Forbidden(specPath.Child("activeDeadlineSeconds"), "Trainer has it since 2.2: remove it"))
	}
	if m.has(olderFields...) {
		r.Errs = append(r.Errs, bothGenerations())
	}
	made, warned, errs := olderOf(r, m.decoded("runtimePatches"))
	delete(m.spec, "runtimePatches")
	m.set("podTemplateOverrides", made.overrides)
	m.set("labels", made.metadata["labels"])
	m.set("annotations", made.metadata["annotations"])
	return m.encode(slices.Concat(warnings, r.Left, warned), errs)
}

// readManifest reads a TrainJob of a version whose fields are known.
func readManifest(data []byte) (m *manifest, warnings []string, errs field.ErrorList) {
	m = &manifest{}
	var head struct{ APIVersion, Kind string }
	if err := json.Unmarshal(data, &m.fields); err != nil {
		return nil, nil, field.ErrorList{field.Invalid(nil, field.OmitValueType{}, "the manifest is not a JSON object: "+err.Error())}
	}
	if err := json.Unmarshal(data, &head); err != nil || head.Kind != trainer.TrainJobKind {
		return nil, nil, field.ErrorList{field.NotSupported(field.NewPath("kind"), head.Kind, []string{trainer.TrainJobKind})}
	}
	switch served := trainer.GroupVersion.String(); {
	case head.APIVersion == served:
	case slices.Contains(unservedVersions, head.APIVersion):
		warnings = append(warnings, fmt.Sprintf("apiVersion: no release of Trainer serves %s; it is written as %s", head.APIVersion, served))
		m.fields["apiVersion"], _ = json.Marshal(served)
	default:
		return nil, nil, field.ErrorList{field.NotSupported(field.NewPath("apiVersion"), head.APIVersion, []string{served})}
	}
	if err := json.Unmarshal(orNull(m.fields["spec"]), &m.spec); err != nil {
		return nil, nil, field.ErrorList{field.TypeInvalid(specPath, field.OmitValueType{}, "it must be an object")}
	}
	return m, warnings, m.oldest()
}

// oldest refuses what only a person can bring to a later release.
func (m *manifest) oldest() (errs field.ErrorList) {
	for _, name := range slices.Sorted(maps.Keys(oldestFields)) {
		if m.has(name) {
			errs = append(errs, field.Forbidden(specPath.Child(name), oldestFields[name]))
		}
	}
	var ref struct{ APIGroup string }
	_ = json.Unmarshal(orNull(m.spec["runtimeRef"]), &ref) // Another type is refused by the rules.
	if group := trainer.GroupVersion.Group; ref.APIGroup != "" && ref.APIGroup != group {
		errs = append(errs, field.NotSupported(specPath.Child("runtimeRef", "apiGroup"), ref.APIGroup, []string{group}))
	}
	return errs
}

// has reports whether the spec holds more than null under any of the names.
func (m *manifest) has(names ...string) bool {
	for _, name := range names {
		if value := string(m.spec[name]); value != "" && value != "null" {
			return true
		}
	}
	return false
}

// decoded returns a field of the spec with its numbers as they are written.
func (m *manifest) decoded(name string) (value any) {
	decoder := json.NewDecoder(bytes.NewReader(orNull(m.spec[name])))
	decoder.UseNumber()
	_ = decoder.Decode(&value) // It was decoded once already.
	return value
}

// set encodes a value made here, which cannot fail, unless there is nothing in it.
func (m *manifest) set(name string, value any) {
	if data, _ := json.Marshal(value); string(data) != "null" {
		m.spec[name] = data
	}
}

// encode returns the manifest with sorted fields, unless there are errors.
func (m *manifest) encode(warnings []string, errs field.ErrorList) ([]byte, []string, field.ErrorList) {
	if len(errs) > 0 {
		return nil, nil, errs
	}
	if m.spec != nil {
		m.fields["spec"], _ = json.Marshal(m.spec)
	}
	data, err := json.Marshal(m.fields)
	if err != nil {
		return nil, nil, field.ErrorList{field.InternalError(nil, err)}
	}
	return data, warnings, nil
}

func orNull(data json.RawMessage) json.RawMessage {
	if len(data) == 0 {
		return json.RawMessage("null")
	}
	return data
}
