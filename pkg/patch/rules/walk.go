// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

type object = map[string]any

// metadata: guides. Only labels and annotations are for patches. Trainer 2.1 ignores the others,
// later releases merge them.
func (v *Verdict) metadata(path *field.Path, metadata object) {
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		if slices.Contains([]string{"name", "namespace", "finalizers"}, key) && metadata[key] != nil {
			v.warn(field.Forbidden(path.Child(key), "only labels and annotations are for patches: remove it"))
		}
	}
}

// overrides checks those of Trainer 2.1.
func (v *Verdict) overrides(overrides []trainjob.RuntimePatch, known templates) {
	for i, o := range overrides {
		path, override := overridesPath.Index(i), o.Fields()
		v.metadata(path.Child("metadata"), child(override, "metadata"))
		spec, at := child(override, "spec"), path.Child("spec")
		targets := map[string]bool{}
		for j, target := range objects(override["targetJobs"]) {
			name := path.Child("targetJobs").Index(j).Child("name")
			if text(target["name"]) == "" {
				v.refuse(field.Required(name, "name a replicated job of the runtime"))
			}
			v.knownJob(trainjob.Trainer21, name, text(target["name"]), known)
			v.podSpec(at, spec, text(target["name"]), known)
			targets[text(target["name"])] = true
		}
		// Trainer merges an override into a job once, however often it names the job.
		for name := range targets {
			known.addSecrets(at.Child("imagePullSecrets"), spec["imagePullSecrets"], name)
		}
		if len(targets) == 0 {
			v.podSpec(at, spec, "", known)
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
		if manager := text(entry["manager"]); manager != "" {
			v.refuse(validation.IsDomainPrefixedPath(path.Child("manager"), manager)...)
		}
		// Where the schema has a format, the API server takes a list for a string; Trainer's webhook cannot decode it.
		if _, ok := entry["time"].([]any); ok {
			v.refuse(field.TypeInvalid(path.Child("time"), field.OmitValueType{}, "it must be a string and is an array"))
		}
		template, at := child(entry, "trainingRuntimeSpec", "template"), path.Child("trainingRuntimeSpec", "template")
		v.metadata(at.Child("metadata"), child(template, "metadata"))
		v.jobs(generation, at.Child("spec", "replicatedJobs"), child(template, "spec"), known)
	}
	v.namedSecrets(known)
}

// jobs checks the patches of replicated jobs.
func (v *Verdict) jobs(generation trainjob.TrainerVersion, path *field.Path, spec object, known templates) {
	for i, job := range objects(spec["replicatedJobs"]) {
		name := text(job["name"])
		v.knownJob(generation, path.Index(i).Child("name"), name, known)
		at := path.Index(i).Child("template")
		v.metadata(at.Child("metadata"), child(job, "template", "metadata"))
		at, pod := at.Child("spec", "template"), child(job, "template", "spec", "template")
		v.metadata(at.Child("metadata"), child(pod, "metadata"))
		v.podSpec(at.Child("spec"), child(pod, "spec"), name, known)
		known.addSecrets(at.Child("spec", "imagePullSecrets"), child(pod, "spec")["imagePullSecrets"], name)
	}
}

// podSpec checks the patch of a pod spec of one replicated job.
func (v *Verdict) podSpec(path *field.Path, spec object, job string, known templates) {
	for _, list := range []string{"initContainers", "containers"} {
		for i, container := range objects(spec[list]) {
			at, name := path.Child(list).Index(i), text(container["name"])
			v.knownContainer(at.Child("name"), job, name, known)
			if list == "containers" {
				v.noReservedEnv(at.Child("env"), name, len(objects(container["env"])))
			}
		}
	}
}

// child goes down through objects; nil where there is none.
func child(value object, keys ...string) object {
	for _, key := range keys {
		value, _ = value[key].(object)
	}
	return value
}

// objects returns the items of a list, with an empty one for each that is no object.
func objects(value any) []object {
	list, _ := value.([]any)
	items := make([]object, 0, len(list))
	for _, item := range list {
		item, _ := item.(object)
		items = append(items, item)
	}
	return items
}

func text(value any) string {
	s, _ := value.(string)
	return s
}

// pullSecrets are what is merged into one list.
type pullSecrets struct {
	// lists counts those that are not empty, the runtime's included.
	lists int
	// unnamed are where a name is missing.
	unnamed []*field.Path
}

// addSecrets counts a list of pull secrets for a replicated job; unknown ones have none.
func (t templates) addSecrets(path *field.Path, value any, job string) {
	list, secrets := t.secrets[job], objects(value)
	if list == nil || len(secrets) == 0 {
		return
	}
	list.lists++
	for i, secret := range secrets {
		if text(secret["name"]) == "" {
			list.unnamed = append(list.unnamed, path.Index(i).Child("name"))
		}
	}
}

// namedSecrets: webhook. The CRD takes a reference without a name, but Trainer cannot
// merge one with a second list, and panics.
func (v *Verdict) namedSecrets(known templates) {
	for _, job := range slices.Sorted(maps.Keys(known.secrets)) {
		for _, path := range known.secrets[job].unnamed {
			if known.secrets[job].lists > 1 {
				v.refuse(field.Required(path, "name a secret"))
			} else {
				v.warn(field.Required(path, "name a secret; Trainer accepts it as long as nobody else has pull secrets for the job"))
			}
		}
	}
}
