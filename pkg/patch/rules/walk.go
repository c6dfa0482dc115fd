// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch/internal/overlay"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

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
		v.metadata(path.Child("metadata"), child(override, "metadata"))
		spec, at := child(override, "spec"), path.Child("spec")
		targets := sets.New[string]()
		for j, target := range objects(override["targetJobs"]) {
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
		template, at := child(entry, "trainingRuntimeSpec", "template"), path.Child("trainingRuntimeSpec", "template")
		v.metadata(at.Child("metadata"), child(template, "metadata"))
		for j, job := range objects(child(template, "spec")["replicatedJobs"]) {
			at, name := at.Child("spec", "replicatedJobs").Index(j), overlay.Text(job["name"])
			v.knownJob(generation, at.Child("name"), name, known)
			at = at.Child("template")
			v.metadata(at.Child("metadata"), child(job, "template", "metadata"))
			at, pod := at.Child("spec", "template"), child(job, "template", "spec", "template")
			v.metadata(at.Child("metadata"), child(pod, "metadata"))
			v.podSpec(at.Child("spec"), child(pod, "spec"), name, known)
		}
	}
	v.namedSecrets(known)
}

// podSpec checks the patch of a pod spec of one replicated job.
func (v *Verdict) podSpec(path *field.Path, spec object, job string, known templates) {
	for _, list := range []string{"initContainers", "containers"} {
		for i, container := range objects(spec[list]) {
			at, name := path.Child(list).Index(i), overlay.Text(container["name"])
			v.knownContainer(at.Child("name"), job, name, known)
			if list == "containers" {
				v.noReservedEnv(at.Child("env"), name, len(objects(container["env"])))
			}
		}
	}
	known.addSecrets(path.Child("imagePullSecrets"), spec["imagePullSecrets"], job)
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

// addSecrets counts a list of pull secrets for a replicated job; unknown ones have none.
func (t templates) addSecrets(path *field.Path, value any, job string) {
	pod, secrets := t[job], objects(value)
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
