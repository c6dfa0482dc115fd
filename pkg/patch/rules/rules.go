// SPDX-License-Identifier: Apache-2.0

// Package rules says, without a cluster, what Trainer says of the patches in a TrainJob.
//
// The rules come from three places: the CRD (fields.go asks the schema that the release ships, with its
// CEL, as the API server does), Trainer's webhook (Validate of its JobSet plugin,
// pkg/runtime/framework/plugins/jobset/jobset.go) and Trainer's guides; rules of these two name theirs.
// Where a guide forbids what the other two accept, the finding is a warning.
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

	"github.com/kueue-trainer/kueue-trainer/pkg/patch/internal/overlay"
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

type object = overlay.Object

// metadata: guides. Only labels and annotations are for patches. Trainer 2.1 ignores the others,
// later releases merge them.
func (v *Verdict) metadata(path *field.Path, metadata object) {
	for _, key := range []string{"finalizers", "name", "namespace"} {
		if metadata[key] != nil {
			v.warn(field.Forbidden(path.Child(key), "only labels and annotations are for patches: remove it"))
		}
	}
}

// overrides checks those of Trainer 2.1.
func (v *Verdict) overrides(overrides []trainjob.RuntimePatch, known templates) {
	for i, o := range overrides {
		path, override := overridesPath.Index(i), o.Fields()
		v.metadata(path.Child("metadata"), overlay.Child(override, "metadata"))
		spec, at := overlay.Child(override, "spec"), path.Child("spec")
		targets := sets.New[string]()
		for j, target := range overlay.Items(override["targetJobs"]) {
			path, name := path.Child("targetJobs").Index(j).Child("name"), overlay.Text(target["name"])
			if name == "" {
				v.refuse(field.Required(path, "name a replicated job of the runtime"))
			}
			v.knownJob(trainjob.Trainer21, path, name, known)
			// Trainer merges an override into a job once, however often it names the job.
			if !targets.Has(name) {
				v.podSpec(at, spec, name, known)
			}
			targets.Insert(name)
		}
	}
	v.namedSecrets(known)
	v.Errors, v.Warnings, v.Unmade = distinct(v.Errors), distinct(v.Warnings), distinct(v.Unmade)
}

// distinct leaves out what was found for several target jobs.
func distinct(errs field.ErrorList) field.ErrorList {
	seen := map[string]bool{}
	return slices.DeleteFunc(errs, func(err *field.Error) bool {
		known := seen[err.Error()]
		seen[err.Error()] = true
		return known
	})
}

// patches checks those of Trainer 2.2 and later.
func (v *Verdict) patches(generation trainjob.TrainerVersion, patches []trainjob.RuntimePatch, known templates) {
	for i, p := range patches {
		path, entry := patchesPath.Index(i), p.Fields()
		if manager := overlay.Text(entry["manager"]); manager != "" {
			v.refuse(validation.IsDomainPrefixedPath(path.Child("manager"), manager)...)
		}
		// Where the schema has a format, the API server takes a list for a string; Trainer's webhook cannot decode it.
		if _, ok := entry["time"].([]any); ok {
			v.refuse(field.TypeInvalid(path.Child("time"), field.OmitValueType{}, "it must be a string and is an array"))
		}
		template, at := overlay.Child(entry, "trainingRuntimeSpec", "template"), path.Child("trainingRuntimeSpec", "template")
		v.metadata(at.Child("metadata"), overlay.Child(template, "metadata"))
		for j, job := range overlay.Items(overlay.Child(template, "spec")["replicatedJobs"]) {
			at, name := at.Child("spec", "replicatedJobs").Index(j), overlay.Text(job["name"])
			v.knownJob(generation, at.Child("name"), name, known)
			at = at.Child("template")
			v.metadata(at.Child("metadata"), overlay.Child(job, "template", "metadata"))
			at, pod := at.Child("spec", "template"), overlay.Child(job, "template", "spec", "template")
			v.metadata(at.Child("metadata"), overlay.Child(pod, "metadata"))
			v.podSpec(at.Child("spec"), overlay.Child(pod, "spec"), name, known)
		}
	}
	v.namedSecrets(known)
}

// podSpec checks the patch of a pod spec of one replicated job.
func (v *Verdict) podSpec(path *field.Path, spec object, job string, known templates) {
	for _, list := range []string{"initContainers", "containers"} {
		for i, container := range overlay.Items(spec[list]) {
			at, name := path.Child(list).Index(i), overlay.Text(container["name"])
			v.knownContainer(at.Child("name"), job, name, known)
			if list == "containers" {
				v.noReservedEnv(at.Child("env"), name, len(overlay.Items(container["env"])))
			}
		}
	}
	known.addSecrets(path.Child("imagePullSecrets"), spec["imagePullSecrets"], job)
}

// addSecrets counts a list of pull secrets for a replicated job; unknown ones have none.
func (t templates) addSecrets(path *field.Path, value any, job string) {
	pod, secrets := t[job], overlay.Items(value)
	if pod == nil || len(secrets) == 0 {
		return
	}
	pod.secretLists++
	for i, secret := range secrets {
		if overlay.Text(secret["name"]) == "" {
			pod.unnamedSecrets = append(pod.unnamedSecrets, path.Index(i).Child("name"))
		}
	}
}

// namedSecrets: webhook. The CRD takes a reference without a name, but Trainer cannot
// merge one with a second list, and panics.
func (v *Verdict) namedSecrets(known templates) {
	for _, job := range slices.Sorted(maps.Keys(known)) {
		for _, path := range known[job].unnamedSecrets {
			if known[job].secretLists > 1 {
				v.refuse(field.Required(path, "name a secret"))
			} else {
				v.warn(field.Required(path, "name a secret; Trainer accepts it as long as nobody else has pull secrets for the job"))
			}
		}
	}
}
