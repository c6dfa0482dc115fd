// SPDX-License-Identifier: Apache-2.0

// Package trainjob knows the TrainJob as the API server stores it, the runtime
// it refers to, and how Trainer turns the two into a JobSet.
//
// The Go types here differ from Trainer's in one point that matters: every entry of
// spec.runtimePatches and spec.podTemplateOverrides is kept as the bytes it arrived in. Trainer's own types
// drop what they do not know and explicit zeros such as "readOnly: false"; a
// writer that uses them changes, or is refused for changing, other managers' data.
package trainjob

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// GVK is the one kind and version that every release of Trainer 2 serves.
var GVK = trainer.GroupVersion.WithKind("TrainJob")

// ControllerName is the value of spec.managedBy for Trainer's own controller,
// which is also what an absent field means (trainer.kubeflow.org/v1alpha1).
const ControllerName = "trainer.kubeflow.org/trainjob-controller"

// TrainJob is trainer.kubeflow.org/v1alpha1 TrainJob with raw patch entries.
// Updates of it must be patches made from a difference, never a full Update:
// top-level spec fields newer than these types are not held.
type TrainJob struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   Spec                   `json:"spec,omitempty"`
	Status trainer.TrainJobStatus `json:"status,omitempty"`
}

// Spec is TrainJobSpec of Trainer 2.2 and 2.3, and of 2.1 as far as pods depend on it.
type Spec struct {
	RuntimeRef  trainer.RuntimeRef   `json:"runtimeRef,omitzero"`
	Initializer *trainer.Initializer `json:"initializer,omitempty"`
	Trainer     *trainer.Trainer     `json:"trainer,omitempty"`
	// RuntimePatches are what a TrainJob patches its runtime with since Trainer 2.2.
	RuntimePatches []RuntimePatch `json:"runtimePatches,omitempty"`
	// PodTemplateOverrides are the same in Trainer 2.1. The API server keeps only that
	// one of the two fields which the served CRD has.
	PodTemplateOverrides  []RuntimePatch `json:"podTemplateOverrides,omitempty"`
	Suspend               *bool          `json:"suspend,omitempty"`
	ActiveDeadlineSeconds int64          `json:"activeDeadlineSeconds,omitempty"`
	ManagedBy             *string        `json:"managedBy,omitempty"`
}

// UnmarshalJSON replaces the whole spec: what the API server does not send any more is
// gone. It reads a TrainJob of Trainer 2.1, whose numProcPerNode may be a text (auto,
// cpu, gpu), as one without it: that is auto, and no pod depends on it.
func (s *Spec) UnmarshalJSON(data []byte) error {
	type plain Spec
	var decoded struct {
		plain
		Trainer json.RawMessage `json:"trainer"`
	}
	if err := utiljson.Unmarshal(data, &decoded); err != nil {
		return err
	}
	*s = Spec(decoded.plain)
	if len(decoded.Trainer) == 0 {
		return nil
	}
	return utiljson.Unmarshal(withoutText(decoded.Trainer, "numProcPerNode"), &s.Trainer)
}

// withoutText leaves a field of an object out if it is a text.
func withoutText(object json.RawMessage, name string) json.RawMessage {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(object, &fields); err != nil || !bytes.HasPrefix(fields[name], []byte(`"`)) {
		return object
	}
	delete(fields, name)
	// What was decoded from JSON can be encoded.
	object, _ = json.Marshal(fields)
	return object
}

// List is a list of TrainJobs. Its name in the API is TrainJobList.
type List struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []TrainJob `json:"items"`
}

// Suspended reports spec.suspend; absent means false (trainer.kubeflow.org/v1alpha1).
func (t *TrainJob) Suspended() bool { return t.Spec.Suspend != nil && *t.Spec.Suspend }

// ManagedExternally reports whether spec.managedBy names another controller than Trainer's own, as
// it does for the jobs that MultiKueue runs in other clusters; absent means Trainer.
func (t *TrainJob) ManagedExternally() bool {
	return t.Spec.ManagedBy != nil && *t.Spec.ManagedBy != ControllerName
}

// ForMultiKueue reports whether MultiKueue runs the job in another cluster.
func (t *TrainJob) ForMultiKueue() bool {
	return t.Spec.ManagedBy != nil && *t.Spec.ManagedBy == kueue.MultiKueueControllerName
}

// Finished reports whether the job is complete or has failed (trainer.kubeflow.org/v1alpha1).
func (t *TrainJob) Finished() bool {
	return apimeta.IsStatusConditionTrue(t.Status.Conditions, trainer.TrainJobComplete) ||
		apimeta.IsStatusConditionTrue(t.Status.Conditions, trainer.TrainJobFailed)
}

// heldSuffix is part of no name that people give to a LocalQueue. A TrainJob is kept out of its queue by a label that names one
// which does not exist, the queue's own name with this suffix. That takes no more than the right to change TrainJobs, a job that
// is stopped so keeps its quota until its last pod is gone, and the way back stands in the name.
const heldSuffix = ".held"

// HoldFieldOwner is who changed the label, for those who look at managedFields: nothing else that
// the plugin writes has this owner.
const HoldFieldOwner = "kubectl-trainjob-hold"

// HeldQueue returns the name that keeps a TrainJob out of a queue.
func HeldQueue(queue string) string { return queue + heldSuffix }

// HeldFrom returns the queue that a TrainJob is held out of, and whether it is.
func HeldFrom(name string) (queue string, held bool) {
	queue, held = strings.CutSuffix(name, heldSuffix)
	return queue, held && queue != ""
}

// typed returns the TrainJob in Trainer's types, with the given patches in place of
// its own. The result shares memory with t and must not be changed.
func (t *TrainJob) typed(patches []RuntimePatch) (*trainer.TrainJob, error) {
	entries := make([]trainer.RuntimePatch, 0, len(patches))
	for _, p := range patches {
		entry, err := p.Decode()
		if err != nil {
			return nil, err
		}
		entries = append(entries, entry)
	}
	return &trainer.TrainJob{
		TypeMeta:   metav1.TypeMeta{APIVersion: trainer.GroupVersion.String(), Kind: GVK.Kind},
		ObjectMeta: t.ObjectMeta,
		Spec: trainer.TrainJobSpec{
			RuntimeRef:            t.Spec.RuntimeRef,
			Initializer:           t.Spec.Initializer,
			Trainer:               t.Spec.Trainer,
			RuntimePatches:        entries,
			Suspend:               t.Spec.Suspend,
			ActiveDeadlineSeconds: t.Spec.ActiveDeadlineSeconds,
			ManagedBy:             t.Spec.ManagedBy,
		},
		Status: t.Status,
	}, nil
}

// DeepCopyInto copies t. Raw entries are never changed in place, so their bytes are shared.
func (t *TrainJob) DeepCopyInto(out *TrainJob) {
	typed, _ := t.typed(nil) // Nothing is decoded.
	typed = typed.DeepCopy()
	// Field by field: one that comes later is missed by its test, and not shared.
	*out = TrainJob{
		TypeMeta:   t.TypeMeta,
		ObjectMeta: typed.ObjectMeta,
		Spec: Spec{
			RuntimeRef:            typed.Spec.RuntimeRef,
			Initializer:           typed.Spec.Initializer,
			Trainer:               typed.Spec.Trainer,
			RuntimePatches:        slices.Clone(t.Spec.RuntimePatches),
			PodTemplateOverrides:  slices.Clone(t.Spec.PodTemplateOverrides),
			Suspend:               typed.Spec.Suspend,
			ActiveDeadlineSeconds: typed.Spec.ActiveDeadlineSeconds,
			ManagedBy:             typed.Spec.ManagedBy,
		},
		Status: typed.Status,
	}
}

// DeepCopy copies t.
func (t *TrainJob) DeepCopy() *TrainJob {
	out := new(TrainJob)
	t.DeepCopyInto(out)
	return out
}

// DeepCopyObject implements runtime.Object.
func (t *TrainJob) DeepCopyObject() runtime.Object { return t.DeepCopy() }

// DeepCopyObject implements runtime.Object.
func (l *List) DeepCopyObject() runtime.Object {
	out := &List{TypeMeta: l.TypeMeta, ListMeta: *l.ListMeta.DeepCopy()}
	if l.Items != nil {
		out.Items = make([]TrainJob, len(l.Items))
		for i := range l.Items {
			l.Items[i].DeepCopyInto(&out.Items[i])
		}
	}
	return out
}

// AddToScheme registers our TrainJob and Trainer's runtimes for trainer.kubeflow.org/v1alpha1.
// A scheme cannot hold Trainer's own TrainJob type beside it.
func AddToScheme(s *runtime.Scheme) error {
	for kind, obj := range map[string]runtime.Object{
		"TrainJob":                   &TrainJob{},
		"TrainJobList":               &List{},
		"TrainingRuntime":            &trainer.TrainingRuntime{},
		"TrainingRuntimeList":        &trainer.TrainingRuntimeList{},
		"ClusterTrainingRuntime":     &trainer.ClusterTrainingRuntime{},
		"ClusterTrainingRuntimeList": &trainer.ClusterTrainingRuntimeList{},
	} {
		s.AddKnownTypeWithName(trainer.GroupVersion.WithKind(kind), obj)
	}
	metav1.AddToGroupVersion(s, trainer.GroupVersion)
	return nil
}
