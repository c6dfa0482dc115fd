// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

type object = map[string]any

// podTemplateOverride is PodTemplateOverride of Trainer 2.1, which our version of its
// API has no more.
type podTemplateOverride struct {
	TargetJobs []struct {
		Name string `json:"name"`
	} `json:"targetJobs"`
	Metadata *metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec     *podSpecOverride   `json:"spec,omitempty"`
}

// podSpecOverride is PodTemplateSpecOverride of Trainer 2.1.
type podSpecOverride struct {
	ServiceAccountName *string                       `json:"serviceAccountName,omitempty"`
	NodeSelector       map[string]string             `json:"nodeSelector,omitempty"`
	Affinity           *corev1.Affinity              `json:"affinity,omitempty"`
	Tolerations        []corev1.Toleration           `json:"tolerations,omitempty"`
	Volumes            []corev1.Volume               `json:"volumes,omitempty"`
	InitContainers     []containerOverride           `json:"initContainers,omitempty"`
	Containers         []containerOverride           `json:"containers,omitempty"`
	SchedulingGates    []corev1.PodSchedulingGate    `json:"schedulingGates,omitempty"`
	ImagePullSecrets   []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`
}

// containerOverride is ContainerOverride of Trainer 2.1.
type containerOverride struct {
	Name         string               `json:"name,omitempty"`
	Env          []corev1.EnvVar      `json:"env,omitempty"`
	VolumeMounts []corev1.VolumeMount `json:"volumeMounts,omitempty"`
}

// read returns an entry as Trainer's types and as it was written. Errors are of values
// that have another type, and of fields that the release does not have: the API server
// refuses those when asked to be strict, as kubectl does, and drops them otherwise.
func read(path *field.Path, entry json.Marshaler, typed any) (object, field.ErrorList) {
	data, err := entry.MarshalJSON()
	if err != nil {
		return nil, field.ErrorList{field.InternalError(path, err)}
	}
	strict, err := kjson.UnmarshalStrict(data, typed)
	if err != nil {
		at, _, err := culprit(path, data, func(data []byte) error {
			return kjson.UnmarshalCaseSensitivePreserveInts(data, reflect.New(reflect.TypeOf(typed).Elem()).Interface())
		})
		return nil, field.ErrorList{mistyped(at, err)}
	}
	var errs field.ErrorList
	for _, err := range strict {
		errs = append(errs, notPatched(path, err))
	}
	var raw object
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	if err := decoder.Decode(&raw); err != nil || raw == nil {
		return nil, append(errs, field.Invalid(path, field.OmitValueType{}, "it must be an object"))
	}
	return raw, append(errs, required(path, raw, reflect.TypeOf(typed))...)
}

// notPatched tells of a field that there is not, or twice, and where the guides want
// those of the trainer container.
func notPatched(path *field.Path, unknown error) *field.Error {
	if at, ok := errors.AsType[kjson.FieldError](unknown); ok {
		path = path.Child(at.FieldPath())
	}
	elsewhere := map[string]string{"command": "command", "args": "args", "image": "image", "resources": "resourcesPerNode"}
	name := path.String()[strings.LastIndex(path.String(), ".")+1:]
	if instead, ok := elsewhere[name]; ok {
		return field.Forbidden(path, "Trainer does not patch it: use spec.trainer."+instead)
	}
	return field.Forbidden(path, "Trainer does not patch it: remove it ("+unknown.Error()+")")
}

// metadata: CRD, which has a few fields of metadata, and guides: only labels and
// annotations are for patches. Trainer 2.1 ignores the others, later releases merge them.
func (v *Verdict) metadata(path *field.Path, metadata object) {
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		switch {
		case key == "labels", key == "annotations", metadata[key] == nil:
		case key == "name", key == "namespace", key == "finalizers":
			v.warn(field.Forbidden(path.Child(key), "only labels and annotations are for patches: remove it"))
		default:
			v.refuse(field.Forbidden(path.Child(key), "Trainer patches labels and annotations only: remove it"))
		}
	}
}

// overrides checks those of Trainer 2.1.
func (v *Verdict) overrides(overrides []trainjob.PodTemplateOverride, known templates) {
	for i, o := range overrides {
		path := overridesPath.Index(i)
		var typed podTemplateOverride
		raw, errs := read(path, o, &typed)
		v.refuse(errs...)
		if raw == nil {
			continue
		}
		v.metadata(path.Child("metadata"), child(raw, "metadata"))
		for j, target := range typed.TargetJobs {
			name := path.Child("targetJobs").Index(j).Child("name")
			if target.Name == "" {
				v.refuse(field.Required(name, "name a replicated job of the runtime"))
			}
			v.knownJob(trainjob.Trainer21, name, target.Name, known)
			v.podSpec(trainjob.Trainer21, path.Child("spec"), child(raw, "spec"), target.Name, known)
		}
		// Trainer merges an override into a job once, however often it names the job.
		for name := range sets.New(o.TargetJobs...) {
			known.addSecrets(path.Child("spec", "imagePullSecrets"), child(raw, "spec")["imagePullSecrets"], name)
		}
		if len(typed.TargetJobs) == 0 {
			v.podSpec(trainjob.Trainer21, path.Child("spec"), child(raw, "spec"), "", known)
		}
	}
	v.namedSecrets(known)
	v.Errors, v.Warnings = distinct(v.Errors), distinct(v.Warnings)
}

// distinct leaves out what was found for several target jobs.
func distinct(errs field.ErrorList) field.ErrorList {
	seen := sets.New[string]()
	var all field.ErrorList
	for _, err := range errs {
		if text := err.Error(); !seen.Has(text) {
			seen.Insert(text)
			all = append(all, err)
		}
	}
	return all
}

// patches checks those of Trainer 2.2 and later.
func (v *Verdict) patches(generation trainjob.TrainerVersion, patches []trainjob.RuntimePatch, known templates) {
	if len(patches) > maxEntries {
		v.refuse(field.TooMany(patchesPath, len(patches), maxEntries))
	}
	managers := sets.New[string]()
	for i, p := range patches {
		path := patchesPath.Index(i)
		var typed trainer.RuntimePatch
		raw, errs := read(path, p, &typed)
		v.refuse(errs...)
		if raw == nil {
			continue
		}
		v.refuse(checkManager(path.Child("manager"), typed.Manager)...)
		if managers.Has(typed.Manager) {
			v.refuse(field.Duplicate(path.Child("manager"), typed.Manager))
		}
		managers.Insert(typed.Manager)
		template, at := child(raw, "trainingRuntimeSpec", "template"), path.Child("trainingRuntimeSpec", "template")
		v.metadata(at.Child("metadata"), child(template, "metadata"))
		v.jobs(generation, at.Child("spec", "replicatedJobs"), child(template, "spec"), known)
	}
	v.namedSecrets(known)
}

// jobs checks the patches of replicated jobs.
func (v *Verdict) jobs(generation trainjob.TrainerVersion, path *field.Path, spec object, known templates) {
	v.refuse(jobList.check(path, spec["replicatedJobs"], true)...)
	for i, job := range objects(spec["replicatedJobs"]) {
		name, _ := job["name"].(string)
		v.knownJob(generation, path.Index(i).Child("name"), name, known)
		at := path.Index(i).Child("template")
		v.metadata(at.Child("metadata"), child(job, "template", "metadata"))
		at, pod := at.Child("spec", "template"), child(job, "template", "spec", "template")
		v.metadata(at.Child("metadata"), child(pod, "metadata"))
		v.podSpec(generation, at.Child("spec"), child(pod, "spec"), name, known)
		known.addSecrets(at.Child("spec", "imagePullSecrets"), child(pod, "spec")["imagePullSecrets"], name)
	}
}

// podSpec checks the patch of a pod spec of one replicated job.
func (v *Verdict) podSpec(generation trainjob.TrainerVersion, path *field.Path, spec object, job string, known templates) {
	newer := generation != trainjob.Trainer21
	for _, list := range podLists {
		v.refuse(list.check(path.Child(list.field), spec[list.field], newer)...)
	}
	if name, ok := spec["serviceAccountName"].(string); ok && newer {
		v.refuse(atMost(path.Child("serviceAccountName"), name, 253)...)
	}
	v.gracePeriod(generation, path.Child("terminationGracePeriodSeconds"), spec["terminationGracePeriodSeconds"])
	for _, list := range []string{"initContainers", "containers"} {
		for i, container := range objects(spec[list]) {
			at := path.Child(list).Index(i)
			name, _ := container["name"].(string)
			v.knownContainer(at.Child("name"), job, name, known)
			for _, inner := range containerLists {
				v.refuse(inner.check(at.Child(inner.field), container[inner.field], newer)...)
			}
			if list == "containers" {
				v.noReservedEnv(at.Child("env"), name, len(objects(container["env"])))
			}
		}
	}
}

// gracePeriod: CRD of 2.3, where it must not be negative; before, there is none.
func (v *Verdict) gracePeriod(generation trainjob.TrainerVersion, path *field.Path, value any) {
	seconds, ok := value.(json.Number)
	switch {
	case !ok:
	case generation == trainjob.Trainer22:
		v.refuse(field.Forbidden(path, "Trainer patches it since 2.3: remove it"))
	case strings.HasPrefix(seconds.String(), "-") && seconds.String() != "-0":
		v.refuse(field.Invalid(path, seconds.String(), "it must not be negative"))
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
