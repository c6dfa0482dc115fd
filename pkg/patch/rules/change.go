// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// patchesChanged compares as Trainer's webhook does, after its other half has put times
// right: a time that a client sends for an entry that says the same is not kept.
func patchesChanged(before, now TrainJob) bool {
	decode := func(patches []trainjob.RuntimePatch) []trainer.RuntimePatch {
		entries := make([]trainer.RuntimePatch, 0, len(patches))
		for _, p := range patches {
			entry, _ := p.Decode() // What cannot be decoded is refused elsewhere.
			entry.Time = nil
			entries = append(entries, entry)
		}
		return entries
	}
	return !equality.Semantic.DeepEqual(decode(before.Patches), decode(now.Patches))
}

func overridesChanged(before, now TrainJob) bool {
	decode := func(overrides []trainjob.PodTemplateOverride) []podTemplateOverride {
		entries := make([]podTemplateOverride, len(overrides))
		for i, o := range overrides {
			data, _ := o.MarshalJSON()
			_ = json.Unmarshal(data, &entries[i]) // What cannot be decoded is refused elsewhere.
		}
		return entries
	}
	return !equality.Semantic.DeepEqual(decode(before.Overrides), decode(now.Overrides))
}

// fixed are the fields of a pod spec that never change once they are set.
// CRD since 2.2, CEL: self == oldSelf; the last one since 2.3.
var fixed = []string{"serviceAccountName", "volumes", "initContainers", "containers", "imagePullSecrets", "securityContext", "terminationGracePeriodSeconds"}

// immutable compares the fixed fields of each manager's entry. An entry, a replicated
// job or a field may come and go: CEL compares only what is there before and after.
func immutable(before, now []trainjob.RuntimePatch) field.ErrorList {
	var errs field.ErrorList
	old := map[string]object{}
	for _, p := range before {
		for _, job := range jobsOf(p) {
			old[p.Manager+" "+text(job["name"])] = podSpecOf(job)
		}
	}
	for i, p := range now {
		for j, job := range jobsOf(p) {
			path := patchesPath.Index(i).Child("trainingRuntimeSpec", "template", "spec", "replicatedJobs").Index(j).
				Child("template", "spec", "template", "spec")
			was, is := old[p.Manager+" "+text(job["name"])], podSpecOf(job)
			for _, key := range fixed {
				if was[key] != nil && is[key] != nil && !same(key, was[key], is[key]) {
					errs = append(errs, field.Forbidden(path.Child(key),
						"it is immutable in an entry: remove it in one request and set it in the next, or use an entry of another manager"))
				}
			}
		}
	}
	return errs
}

// renamed: guides. A manager never changes; to the CRD, which keys the list by it, the
// entry under its new name is another one.
func renamed(before, now []trainjob.RuntimePatch) field.ErrorList {
	gone := slices.DeleteFunc(slices.Clone(before), func(p trainjob.RuntimePatch) bool { return hasManager(now, p.Manager) })
	var errs field.ErrorList
	for i, p := range now {
		from := slices.IndexFunc(gone, func(old trainjob.RuntimePatch) bool { return sameContent(old, p) })
		if from >= 0 && !hasManager(before, p.Manager) {
			errs = append(errs, field.Forbidden(patchesPath.Index(i).Child("manager"), fmt.Sprintf(
				"the manager of an entry never changes; Trainer accepts it as the end of the entry of %q and a new one", gone[from].Manager)))
		}
	}
	return errs
}

func hasManager(patches []trainjob.RuntimePatch, manager string) bool {
	return slices.ContainsFunc(patches, func(p trainjob.RuntimePatch) bool { return p.Manager == manager })
}

// sameContent compares what two entries patch, whoever owns them. Entries that patch
// nothing have no content to go by.
func sameContent(a, b trainjob.RuntimePatch) bool {
	content := func(p trainjob.RuntimePatch) *trainer.TrainingRuntimeSpecPatch {
		entry, _ := p.Decode() // What cannot be decoded is refused elsewhere.
		return entry.TrainingRuntimeSpec
	}
	return content(a) != nil && equality.Semantic.DeepEqual(content(a), content(b))
}

func jobsOf(p trainjob.RuntimePatch) []object {
	data, err := p.MarshalJSON()
	if err != nil {
		return nil
	}
	var raw object
	if err := json.Unmarshal(data, &raw); err != nil {
		return nil
	}
	return objects(child(raw, "trainingRuntimeSpec", "template", "spec")["replicatedJobs"])
}

func podSpecOf(job object) object {
	return child(job, "template", "spec", "template", "spec")
}

func text(value any) string {
	s, _ := value.(string)
	return s
}

// same compares values of a field as CEL does, with what the schema tells: lists with a key have
// no order. Amounts count as they are written.
func same(key string, a, b any) bool {
	return reflect.DeepEqual(settled(key, a), settled(key, b))
}

// settled sorts lists with a key, and leaves nulls out as the API server does.
func settled(key string, value any) any {
	switch value := value.(type) {
	case object:
		fields := object{}
		for k, v := range value {
			if v != nil {
				fields[k] = settled(k, v)
			}
		}
		return fields
	case []any:
		items := make([]any, 0, len(value))
		for _, item := range value {
			items = append(items, settled("", item))
		}
		if slices.ContainsFunc(slices.Concat(podLists, containerLists), func(l keyedList) bool { return l.field == key && l.key != "" }) {
			slices.SortStableFunc(items, func(a, b any) int {
				a1, _ := a.(object)
				b1, _ := b.(object)
				return strings.Compare(text(a1["name"]), text(b1["name"]))
			})
		}
		return items
	}
	return value
}
