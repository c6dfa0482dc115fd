// SPDX-License-Identifier: Apache-2.0

// Package releases knows what each release of Trainer ships: its runtimes, and the schemas
// of its kinds. `make generate` copies both out of Trainer's modules.
package releases

import (
	"context"
	"embed"
	"encoding/json"
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	kjson "sigs.k8s.io/json"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

//go:embed 2.*
var files embed.FS

// Runtimes returns the manifest of the ClusterTrainingRuntimes that a release ships.
func Runtimes(release trainjob.TrainerVersion) ([]byte, error) {
	return read(release, "runtimes.yaml")
}

func read(release trainjob.TrainerVersion, name string) ([]byte, error) {
	data, err := files.ReadFile(release.String() + "/" + name)
	if err != nil {
		return nil, fmt.Errorf("what Trainer %s ships is not known: %w", release, err)
	}
	return data, nil
}

// Kind is a kind whose schema is known.
type Kind string

const (
	// TrainJob is the kind of that name.
	TrainJob Kind = "trainjobs"
	// Runtime is ClusterTrainingRuntime, and TrainingRuntime, which has the same schema.
	Runtime Kind = "clustertrainingruntimes"
)

// Schema checks objects as an API server does that has a release's CRD.
type Schema struct {
	release    trainjob.TrainerVersion
	structural *structuralschema.Structural
	validator  validation.SchemaValidator
	cel        *cel.Validator
}

// NewSchema returns the schema that a release has for a kind.
func NewSchema(release trainjob.TrainerVersion, kind Kind) (*Schema, error) {
	data, err := read(release, string(kind)+".json")
	if err != nil {
		return nil, err
	}
	var v1 apiextensionsv1.JSONSchemaProps
	if err := json.Unmarshal(data, &v1); err != nil {
		return nil, fmt.Errorf("decoding the schema of %s: %w", kind, err)
	}
	var schema apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(&v1, &schema, nil); err != nil {
		return nil, fmt.Errorf("converting the schema of %s: %w", kind, err)
	}
	s := &Schema{release: release}
	if s.structural, err = structuralschema.NewStructural(&schema); err != nil {
		return nil, fmt.Errorf("reading the schema of %s: %w", kind, err)
	}
	if s.validator, _, err = validation.NewSchemaValidator(&schema); err != nil {
		return nil, fmt.Errorf("reading the schema of %s: %w", kind, err)
	}
	s.cel = cel.NewValidator(s.structural, true, celconfig.PerCallLimit)
	return s, nil
}

// Check returns what a strict request with an object in JSON is refused for, and the object
// as it would be stored: with defaults, and without unknown fields. Of metadata, which the
// API server checks for all kinds, only what the schema says of it is checked.
func (s *Schema) Check(ctx context.Context, data []byte) (stored []byte, errs field.ErrorList) {
	object, errs := s.read(data)
	if object == nil {
		return nil, errs
	}
	wrong := validation.ValidateCustomResource(nil, object, s.validator)
	wrong = append(wrong, listtype.ValidateListSetsAndMaps(nil, s.structural, object)...)
	if len(wrong) == 0 {
		wrong, _ = s.cel.Validate(ctx, nil, s.structural, object, nil, celconfig.RuntimeCELCostBudget)
	}
	stored, _ = json.Marshal(object) // What was decoded from JSON can be encoded.
	return stored, append(errs, wrong...)
}

// Stored returns an object in JSON as it would be stored: with defaults, and without unknown fields. What is no
// object comes back as it is.
func (s *Schema) Stored(data []byte) []byte {
	object, _ := s.read(data)
	if object == nil {
		return data
	}
	stored, _ := json.Marshal(object) // What was decoded from JSON can be encoded.
	return stored
}

// read decodes as the API server does, and tells of fields that there are not, or twice.
func (s *Schema) read(data []byte) (object map[string]any, errs field.ErrorList) {
	twice, err := kjson.UnmarshalStrict(data, &object)
	if err != nil || object == nil {
		return nil, field.ErrorList{field.Invalid(nil, field.OmitValueType{}, fmt.Sprintf("it must be an object: %v", err))}
	}
	for _, err := range twice {
		errs = append(errs, field.Invalid(nil, field.OmitValueType{}, err.Error()))
	}
	options := structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}
	for _, path := range pruning.PruneWithOptions(object, s.structural, true, options) {
		errs = append(errs, field.Forbidden(field.NewPath(path), fmt.Sprintf("Trainer %s has no such field: remove it, or correct its name", s.release)))
	}
	defaulting.PruneNonNullableNullsWithoutDefaults(object, s.structural)
	defaulting.Default(object, s.structural)
	return object, errs
}
