// SPDX-License-Identifier: Apache-2.0

// Package rules says, without a cluster, what Trainer says of the patches in a TrainJob.
//
// The rules come from three places: the CRD (crd.go asks the schema that the release ships, with its
// CEL, as the API server does), Trainer's webhook (Validate of its JobSet plugin,
// pkg/runtime/framework/plugins/jobset/jobset.go) and Trainer's guides; walk.go goes through patches for
// these two, each of which names its own. Where a guide forbids what the other two accept, the finding
// is a warning.
package rules

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// Verdict is everything that there is to say about a TrainJob.
type Verdict struct {
	// Errors are what a release refuses a TrainJob for.
	Errors field.ErrorList
	// Warnings are what a release takes although it does not do what it looks like.
	Warnings field.ErrorList
	// Unmade are what a release takes although JobSet or the API server refuses what comes
	// of it: there is never a pod.
	Unmade field.ErrorList
}

func (v *Verdict) refuse(errs ...*field.Error) { v.Errors = append(v.Errors, errs...) }
func (v *Verdict) warn(errs ...*field.Error)   { v.Warnings = append(v.Warnings, errs...) }
func (v *Verdict) unmade(err *field.Error)     { v.Unmade = append(v.Unmade, err) }

// Create returns the verdict of a generation on the patches of a new TrainJob that uses the runtime. With
// no runtime, nil, whatever depends on one is left out.
func Create(generation trainjob.TrainerVersion, runtime *trainer.TrainingRuntimeSpec, job *trainjob.Spec) Verdict {
	v := &Verdict{Errors: refusals(generation, manifest(generation, job))}
	known := templatesOf(runtime)
	if generation == trainjob.Trainer21 {
		v.overrides(job.PodTemplateOverrides, known)
	} else {
		v.patches(generation, job.RuntimePatches, known)
	}
	return *v
}

var (
	overridesPath = field.NewPath("spec", "podTemplateOverrides")
	patchesPath   = field.NewPath("spec", "runtimePatches")
)

// templates are what counts of the pod templates that patches are merged into, by replicated job; nil when they are not
// known.
type templates map[string]*podTemplate

type podTemplate struct {
	// containers are their names, init containers included.
	containers sets.Set[string]
	// secretLists counts the lists of pull secrets that are merged into one and not empty, the runtime's included.
	secretLists int
	// unnamedSecrets are where a name is missing.
	unnamedSecrets []*field.Path
}

func templatesOf(runtime *trainer.TrainingRuntimeSpec) templates {
	if runtime == nil {
		return nil
	}
	known := templates{}
	for _, job := range runtime.Template.Spec.ReplicatedJobs {
		pod, names := job.Template.Spec.Template.Spec, sets.New[string]()
		for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
			names.Insert(c.Name)
		}
		known[job.Name] = &podTemplate{containers: names, secretLists: min(len(pod.ImagePullSecrets), 1)}
	}
	return known
}

// knownJob: webhook, Validate. Trainer 2.3 looks for the job after the merge of the
// patches, which adds it with nothing in it; the guides forbid that all the same.
func (v *Verdict) knownJob(generation trainjob.TrainerVersion, path *field.Path, name string, known templates) {
	if known == nil || known[name] != nil || name == "" {
		return
	}
	err := field.Invalid(path, name, "the runtime has no replicated job of this name; it has: "+strings.Join(slices.Sorted(maps.Keys(known)), ", "))
	if generation == trainjob.Trainer23 {
		err.Detail += "; Trainer accepts it and makes a JobSet that cannot run"
		v.unmade(err)
		return
	}
	v.refuse(err)
}

// knownContainer: guides. The webhooks of all releases look for the container after the
// merge of the patches, which adds it with nothing in it, so they never miss one.
func (v *Verdict) knownContainer(path *field.Path, job, name string, known templates) {
	if t := known[job]; t != nil && name != "" && !t.containers.Has(name) {
		v.unmade(field.Invalid(path, name, fmt.Sprintf(
			"replicated job %q of the runtime has no container of this name; it has: %s; Trainer accepts it and makes a pod that cannot run",
			job, strings.Join(sets.List(t.containers), ", "))))
	}
}

// reserved are the containers whose variables the TrainJob itself sets, and where.
var reserved = map[string]string{
	"node":                "spec.trainer.env",
	"dataset-initializer": "spec.initializer.dataset.env",
	"model-initializer":   "spec.initializer.model.env",
}

// OriginWebhook is the origin of what Trainer's webhook forbids; the API server drops what the CRD does not have.
const OriginWebhook = "webhook"

// noReservedEnv: webhook, Validate. It counts for containers only; init containers of
// these names may have variables.
func (v *Verdict) noReservedEnv(path *field.Path, container string, variables int) {
	if instead, ok := reserved[container]; ok && variables > 0 {
		v.refuse(field.Forbidden(path, fmt.Sprintf("variables of container %q are set elsewhere: use %s", container, instead)).WithOrigin(OriginWebhook))
	}
}

// Manager checks the name of an entry's manager: CRD (up to 253 characters) and webhook.
func Manager(name string) field.ErrorList {
	switch {
	case name == "":
		return field.ErrorList{field.Required(nil, "it must not be empty")}
	case len([]rune(name)) > 253:
		return field.ErrorList{field.TooLong(nil, name, 253)}
	}
	return validation.IsDomainPrefixedPath(nil, name)
}
