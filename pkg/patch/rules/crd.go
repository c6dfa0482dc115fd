// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kueue-trainer/kueue-trainer/pkg/releases"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// schemas are those of the releases' CRDs; compiling their CEL takes a while.
var schemas sync.Map

func schemaOf(generation trainjob.TrainerVersion) (*releases.Schema, error) {
	if known, ok := schemas.Load(generation); ok {
		return known.(*releases.Schema), nil
	}
	schema, err := releases.NewSchema(generation, releases.TrainJob)
	if err == nil {
		schemas.Store(generation, schema)
	}
	return schema, err
}

// refusals are what the CRD of a generation refuses of a TrainJob in JSON, in words that say what
// to do.
func refusals(generation trainjob.TrainerVersion, job []byte) field.ErrorList {
	schema, err := schemaOf(generation)
	if err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	_, errs := schema.Check(context.Background(), job)
	for _, err := range errs {
		reword(err)
	}
	// The schema's maps have no order.
	slices.SortStableFunc(errs, func(a, b *field.Error) int { return strings.Compare(a.Field, b.Field) })
	return errs
}

var (
	// mapOfAmounts are maps whose keys the schema has as fields.
	mapOfAmounts = regexp.MustCompile(`\.(limits|requests|nodeSelector|labels|annotations)\.([^\[]*[./][^\[]*)$`)
	mistyped     = regexp.MustCompile(`must be of type (\w+): "(\w+)"$`)
	inPatches    = regexp.MustCompile(`^spec\.(podTemplateOverrides|runtimePatches)\[.*?([A-Za-z]+)$`)
)

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

// ofTrainer are the fields of a container that spec.trainer has.
var ofTrainer = map[string]string{"command": "command", "args": "args", "image": "image", "resources": "resourcesPerNode"}

// kinds are JSON's in words.
var kinds = map[string]string{"string": "a string", "boolean": "true or false", "integer": "a whole number", "array": "a list", "object": "an object"}

func reword(err *field.Error) {
	patched := inPatches.FindStringSubmatch(err.Field)
	switch hint := elsewhere[err.Field]; {
	case err.Type == field.ErrorTypeForbidden && hint != "":
		err.Detail = hint
	case err.Type == field.ErrorTypeForbidden && patched != nil && ofTrainer[patched[2]] != "":
		err.Detail = "Trainer does not patch it: use spec.trainer." + ofTrainer[patched[2]]
	case err.Type == field.ErrorTypeForbidden && patched != nil:
		err.Detail = "Trainer does not patch it: remove it"
	case strings.Contains(err.Detail, "KMGTPE"):
		err.BadValue, err.Detail = field.OmitValueType{}, "it must be an amount, such as 8 or 16Gi"
	case mistyped.MatchString(err.Detail):
		types := mistyped.FindStringSubmatch(err.Detail)
		err.BadValue, err.Detail = field.OmitValueType{}, fmt.Sprintf("it must be %s and is a %s", cmp.Or(kinds[types[1]], types[1]), types[2])
	case err.Type == field.ErrorTypeDuplicate:
		if key, ok := err.BadValue.(object); ok {
			for name, value := range key { // there is one, in all lists
				err.Field, err.BadValue = err.Field+"."+name, value
			}
		}
	case err.Type == field.ErrorTypeRequired && err.Field == "spec.runtimeRef.name":
		err.Detail = "name a runtime"
	case err.Type == field.ErrorTypeRequired && err.Detail == "":
		err.Detail = "set it"
	}
	err.Field = mapOfAmounts.ReplaceAllString(err.Field, ".$1[$2]")
}

// manifest is the least that has the patches of a TrainJob.
func manifest(generation trainjob.TrainerVersion, job *trainjob.Spec) []byte {
	spec := object{"runtimeRef": object{"name": "runtime"}, "runtimePatches": job.RuntimePatches}
	if generation == trainjob.Trainer21 {
		spec["podTemplateOverrides"] = job.PodTemplateOverrides
		delete(spec, "runtimePatches")
	}
	data, _ := json.Marshal(object{"apiVersion": trainjob.GVK.GroupVersion().String(), "kind": trainjob.GVK.Kind, "metadata": object{"name": "job"}, "spec": spec})
	return data
}
