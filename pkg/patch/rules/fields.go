// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// manifest is a TrainJob as one release or another reads it. Patches are looked at on
// their own.
type manifest[S any] struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        metav1.ObjectMeta `json:"metadata"`
	Spec            S                 `json:"spec"`
	Status          json.RawMessage   `json:"status"`
}

// spec21 is TrainJobSpec of Trainer 2.1.
type spec21 struct {
	RuntimeRef           trainer.RuntimeRef   `json:"runtimeRef"`
	Initializer          *trainer.Initializer `json:"initializer"`
	Trainer              *trainer21           `json:"trainer"`
	Labels               map[string]string    `json:"labels"`
	Annotations          map[string]string    `json:"annotations"`
	PodTemplateOverrides []json.RawMessage    `json:"podTemplateOverrides"`
	Suspend              *bool                `json:"suspend"`
	ManagedBy            *string              `json:"managedBy"`
}

// trainer21 is Trainer of Trainer 2.1, where a text may tell the number of processes.
type trainer21 struct {
	trainer.Trainer `json:",inline"`
	NumProcPerNode  *intstr.IntOrString `json:"numProcPerNode"`
}

// spec22 is TrainJobSpec since Trainer 2.2.
type spec22 struct {
	trainer.TrainJobSpec `json:",inline"`
	RuntimePatches       []json.RawMessage `json:"runtimePatches"`
}

// Fields returns the verdict of a generation on everything in a manifest in JSON but its
// patches, as far as the CRD's schema and the API server's rules for metadata have it:
// fields that there are not, values of another type, and the rules for single fields.
// Limits of length are not among them.
func Fields(generation trainjob.TrainerVersion, data []byte) field.ErrorList {
	if generation == trainjob.Trainer21 {
		m, errs := readStrict[spec21](generation, data)
		return append(errs, common(m.Metadata, m.Spec.RuntimeRef, m.Spec.ManagedBy)...)
	}
	m, errs := readStrict[spec22](generation, data)
	errs = append(errs, common(m.Metadata, m.Spec.RuntimeRef, m.Spec.ManagedBy)...)
	errs = append(errs, since22(data)...)
	if generation == trainjob.Trainer22 {
		return errs
	}
	return append(errs, since23(m.Spec.Initializer)...)
}

// readStrict finds fields that the release does not have, and values of other types.
func readStrict[S any](generation trainjob.TrainerVersion, data []byte) (manifest[S], field.ErrorList) {
	m, strict, errs := decodeStrict[manifest[S]](data)
	for _, err := range strict {
		errs = append(errs, noSuchField(generation, err))
	}
	return m, errs
}

// elsewhere are fields of other releases, and the remedy.
var elsewhere = map[string]string{
	"spec.podTemplateOverrides":  "it is of Trainer 2.1: kubectl trainjob migrate makes runtimePatches of it",
	"spec.templateOverrides":     "no release has it: kubectl trainjob migrate makes runtimePatches of it",
	"spec.jobTemplateOverrides":  "no release has it: kubectl trainjob migrate makes runtimePatches of it",
	"spec.labels":                "it is of Trainer 2.1: kubectl trainjob migrate makes runtimePatches of it",
	"spec.annotations":           "it is of Trainer 2.1: kubectl trainjob migrate makes runtimePatches of it",
	"spec.podSpecOverrides":      "it is of Trainer 2.0: write it as podTemplateOverrides, and kubectl trainjob migrate makes runtimePatches of it",
	"spec.runtimePatches":        "Trainer has it since 2.2: use spec.podTemplateOverrides",
	"spec.activeDeadlineSeconds": "Trainer has it since 2.2: remove it",
}

func noSuchField(generation trainjob.TrainerVersion, unknown error) *field.Error {
	var at kjson.FieldError
	if !errors.As(unknown, &at) {
		return field.Invalid(nil, field.OmitValueType{}, unknown.Error())
	}
	path := at.FieldPath()
	detail, ok := elsewhere[path]
	if !ok {
		detail = fmt.Sprintf("Trainer %s has no such field: remove it, or correct its name", generation)
	}
	return field.Forbidden(field.NewPath(path), detail)
}

var dnsLabel = regexp.MustCompile(`^[a-z]([-a-z0-9]*[a-z0-9])?$`)

// common: CRD and metadata, all releases.
func common(metadata metav1.ObjectMeta, ref trainer.RuntimeRef, managedBy *string) field.ErrorList {
	var errs field.ErrorList
	name := field.NewPath("metadata", "name")
	switch {
	case metadata.Name == "" && metadata.GenerateName == "":
		errs = append(errs, field.Required(name, "name the TrainJob"))
	case metadata.Name != "" && !dnsLabel.MatchString(metadata.Name):
		errs = append(errs, field.Invalid(name, metadata.Name, "it must be of lower case letters, digits and -, begin with a letter and not end with -"))
	case len(metadata.Name) > 63:
		errs = append(errs, field.TooLong(name, metadata.Name, 63))
	}
	errs = append(errs, Metadata(&metadata)...)
	if ref.Name == "" {
		errs = append(errs, field.Required(specPath.Child("runtimeRef", "name"), "name a runtime"))
	}
	managers := []string{trainjob.ControllerName, kueue.MultiKueueControllerName}
	if managedBy != nil && *managedBy != managers[0] && *managedBy != managers[1] {
		errs = append(errs, field.NotSupported(specPath.Child("managedBy"), *managedBy, managers))
	}
	return errs
}

var (
	specPath = field.NewPath("spec")
	uri      = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*://.+$`)
)

// since22: CRD since 2.2.
func since22(data []byte) field.ErrorList {
	var given struct {
		Spec struct{ ActiveDeadlineSeconds *int64 }
	}
	_ = json.Unmarshal(data, &given) // What cannot be decoded is refused elsewhere.
	if seconds := given.Spec.ActiveDeadlineSeconds; seconds != nil && *seconds < 1 {
		return field.ErrorList{field.Invalid(specPath.Child("activeDeadlineSeconds"), *seconds, "it must be 1 or more: leave it out for no deadline")}
	}
	return nil
}

// since23: CRD since 2.3.
func since23(initializer *trainer.Initializer) field.ErrorList {
	if initializer == nil {
		return nil
	}
	var errs field.ErrorList
	check := func(name string, value *string) {
		if value != nil && *value != "" && !uri.MatchString(*value) {
			errs = append(errs, field.Invalid(specPath.Child("initializer", name, "storageUri"), *value, "it must be a URI, such as hf://owner/name"))
		}
	}
	if dataset := initializer.Dataset; dataset != nil {
		check("dataset", dataset.StorageUri)
	}
	if model := initializer.Model; model != nil {
		check("model", model.StorageUri)
	}
	return errs
}
