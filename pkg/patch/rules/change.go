// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"encoding/json"
	"fmt"
	"slices"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// podTemplateOverride is PodTemplateOverride of Trainer 2.1, which our version of its API has no more.
type podTemplateOverride struct {
	TargetJobs []struct{ Name string }
	Metadata   *metav1.ObjectMeta
	Spec       *struct {
		ServiceAccountName         *string
		NodeSelector               map[string]string
		Affinity                   *corev1.Affinity
		Tolerations                []corev1.Toleration
		Volumes                    []corev1.Volume
		InitContainers, Containers []struct {
			Name         string
			Env          []corev1.EnvVar
			VolumeMounts []corev1.VolumeMount
		}
		SchedulingGates  []corev1.PodSchedulingGate
		ImagePullSecrets []corev1.LocalObjectReference
	}
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
