// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
	"github.com/kueue-trainer/kueue-trainer/pkg/quantity"
	"github.com/kueue-trainer/kueue-trainer/pkg/releases"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

var (
	specPath = field.NewPath("spec")
	dnsLabel = regexp.MustCompile(`^[a-z]([-a-z0-9]*[a-z0-9])?$`)
)

// Fields returns the verdict of a generation on everything in a manifest in JSON but its
// patches, as far as the CRD's schema and the API server's rules for metadata have it.
func Fields(generation trainjob.TrainerVersion, data []byte) field.ErrorList {
	var job struct{ Metadata metav1.ObjectMeta }
	_ = json.Unmarshal(data, &job) // The schema refuses most of what cannot be decoded, and callers decode it again.
	errs := append(name(&job.Metadata), Metadata(&job.Metadata)...)
	patches := patch.Of(generation).Path().String() + "["
	return append(errs, slices.DeleteFunc(refusals(generation, data), func(err *field.Error) bool {
		return strings.HasPrefix(err.Field, patches) || strings.Contains(err.Detail, "metadata.name ")
	})...)
}

// name: CRD, which tells nobody where; and a TrainJob has one.
func name(metadata *metav1.ObjectMeta) field.ErrorList {
	path := field.NewPath("metadata", "name")
	switch {
	case metadata.Name == "" && metadata.GenerateName == "":
		return field.ErrorList{field.Required(path, "name the TrainJob")}
	case metadata.Name != "" && !dnsLabel.MatchString(metadata.Name):
		return field.ErrorList{field.Invalid(path, metadata.Name, "it must be of lower case letters, digits and -, begin with a letter and not end with -")}
	case len(metadata.Name) > 63:
		return field.ErrorList{field.TooLong(path, metadata.Name, 63)}
	}
	return nil
}

// Metadata returns what the API server, which checks what is of no CRD's schema for objects
// of every kind, refuses of one's metadata.
func Metadata(metadata *metav1.ObjectMeta) field.ErrorList {
	path := field.NewPath("metadata")
	var errs field.ErrorList
	if metadata.Namespace != "" {
		errs = append(errs, Complaints(path.Child("namespace"), metadata.Namespace, apivalidation.ValidateNamespaceName(metadata.Namespace, false))...)
	}
	if metadata.GenerateName != "" {
		errs = append(errs, Complaints(path.Child("generateName"), metadata.GenerateName, apivalidation.NameIsDNSSubdomain(metadata.GenerateName, true))...)
	}
	for _, key := range slices.Sorted(maps.Keys(metadata.Labels)) {
		at := path.Child("labels").Key(key)
		errs = append(errs, Complaints(at, key, validation.IsQualifiedName(key))...)
		errs = append(errs, Complaints(at, metadata.Labels[key], validation.IsValidLabelValue(metadata.Labels[key]))...)
	}
	for _, key := range slices.Sorted(maps.Keys(metadata.Annotations)) {
		// Kubernetes takes capitals in the prefix of an annotation.
		errs = append(errs, Complaints(path.Child("annotations").Key(key), key, validation.IsQualifiedName(strings.ToLower(key)))...)
	}
	return append(errs, apivalidation.ValidateFinalizers(metadata.Finalizers, path.Child("finalizers"))...)
}

// Complaints makes one error of what there is to say of a value.
func Complaints(path *field.Path, value string, texts []string) field.ErrorList {
	if len(texts) == 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(path, value, strings.Join(texts, "; "))}
}

// Pods finds, outside the patches of a manifest in JSON, what a generation of Trainer
// takes although the API server refuses the pods that come of it: the TrainJob never runs.
func Pods(generation trainjob.TrainerVersion, data []byte) field.ErrorList {
	var job trainjob.TrainJob
	_ = json.Unmarshal(data, &job) // What cannot be decoded is of Fields.
	errs := checkTrainer(generation, &job)
	if initializer := job.Spec.Initializer; initializer != nil {
		path := specPath.Child("initializer")
		if initializer.Dataset != nil {
			errs = append(errs, checkEnv(path.Child("dataset", "env"), initializer.Dataset.Env)...)
		}
		if initializer.Model != nil {
			errs = append(errs, checkEnv(path.Child("model", "env"), initializer.Model.Env)...)
		}
	}
	// A value that could not be decoded looks like none.
	undecoded := refusals(trainjob.Trainer23, data)
	errs = slices.DeleteFunc(errs, func(err *field.Error) bool {
		return slices.ContainsFunc(undecoded, func(u *field.Error) bool { return u.Field == err.Field })
	})
	for _, err := range errs {
		err.Detail += "; Trainer accepts it and makes a JobSet that cannot run"
	}
	return errs
}

func checkTrainer(generation trainjob.TrainerVersion, job *trainjob.TrainJob) field.ErrorList {
	t := job.Spec.Trainer
	if t == nil {
		return nil
	}
	path := specPath.Child("trainer")
	errs := append(checkEnv(path.Child("env"), t.Env), podset.ValidateNodes(job)...)
	if t.ResourcesPerNode != nil {
		errs = append(errs, checkResources(generation, path.Child("resourcesPerNode"), t.ResourcesPerNode)...)
	}
	return errs
}

// checkEnv: pods. Names may be nearly everything since Kubernetes 1.34.
func checkEnv(path *field.Path, variables []corev1.EnvVar) field.ErrorList {
	var errs field.ErrorList
	for i, variable := range variables {
		errs = append(errs, Complaints(path.Index(i).Child("name"), variable.Name, validation.IsRelaxedEnvVarName(variable.Name))...)
	}
	return errs
}

// checkResources: pods. Since Trainer 2.3 a limit, or cpu and memory, may be the runtime's.
func checkResources(generation trainjob.TrainerVersion, path *field.Path, resources *corev1.ResourceRequirements) field.ErrorList {
	var errs field.ErrorList
	for _, wrong := range quantity.Check(resources) {
		if wrong.NeedsMore && generation >= trainjob.Trainer23 {
			continue
		}
		errs = append(errs, field.Invalid(path.Child(wrong.List).Key(string(wrong.Name)), wrong.Quantity.String(), wrong.Why))
	}
	return errs
}

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
