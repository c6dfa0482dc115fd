// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/apimachinery/pkg/api/resource"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/utils/ptr"
)

const (
	// Manager is the key of our entry. It is the one that Kueue's in-tree integration uses, so
	// that a cluster can migrate both ways.
	Manager = "kueue.x-k8s.io/manager"

	// ManagerAnnotation marks our overrides, with Manager as its value: overrides have no owner,
	// so it stands among the annotations of the pods.
	ManagerAnnotation = "kueue-trainer.dev/manager"
)

// RuntimePatch is an entry of spec.runtimePatches or, in Trainer 2.1, of
// spec.podTemplateOverrides: its bytes, and what tells it from others.
type RuntimePatch struct {
	// Manager is the key of a runtime patch; empty when the entry has none or is not an object.
	Manager string
	// TargetJobs are the replicated jobs that an override is for, in its order; nil when the
	// entry has none or they cannot be read.
	TargetJobs []string

	// marked is for an override with ManagerAnnotation.
	marked bool
	raw    json.RawMessage
}

// NewRuntimePatch encodes an entry of our own making, which is of types that always can be.
func NewRuntimePatch(entry any) (p RuntimePatch) {
	raw, _ := json.Marshal(entry)
	_ = p.UnmarshalJSON(raw) // It accepts everything.
	return p
}

// NewRuntimePatches encodes several of them.
func NewRuntimePatches[T any](entries []T) (patches []RuntimePatch) {
	for _, entry := range entries {
		patches = append(patches, NewRuntimePatch(entry))
	}
	return patches
}

// Ours reports whether the entry is the manager's. A mark is for overrides, which name no manager.
func (p RuntimePatch) Ours() bool { return p.Manager == Manager || p.Manager == "" && p.marked }

// Decode returns the entry in Trainer's types, without what those do not know.
func (p RuntimePatch) Decode() (trainer.RuntimePatch, error) {
	var entry trainer.RuntimePatch
	if err := p.DecodeInto(&entry); err != nil {
		return entry, fmt.Errorf("decoding the runtime patch of manager %q: %w", p.Manager, err)
	}
	return entry, nil
}

// ReplicatedJobs returns what an entry says of replicated jobs.
func ReplicatedJobs(entry *trainer.RuntimePatch) []trainer.ReplicatedJobPatch {
	template := ptr.Deref(entry.TrainingRuntimeSpec, trainer.TrainingRuntimeSpecPatch{}).Template
	return ptr.Deref(ptr.Deref(template, trainer.JobSetTemplatePatch{}).Spec, trainer.JobSetSpecPatch{}).ReplicatedJobs
}

// DecodeInto reads the entry into a type with the fields that matter.
func (p RuntimePatch) DecodeInto(into any) error { return utiljson.Unmarshal(p.raw, into) }

// Fields returns the entry with its numbers as they were written; nil for one that is no object.
func (p RuntimePatch) Fields() map[string]any {
	value, _ := decodeNumbers(p.raw) // What cannot be decoded is no object.
	fields, _ := value.(map[string]any)
	return fields
}

// Equal reports whether two entries are the same bytes.
func (p RuntimePatch) Equal(o RuntimePatch) bool { return bytes.Equal(p.raw, o.raw) }

// SemanticallyEqual reports whether two entries differ at the most in how amounts are written.
func (p RuntimePatch) SemanticallyEqual(o RuntimePatch) bool { return SemanticallyEqual(p.raw, o.raw) }

// UnmarshalJSON keeps the bytes. It accepts whatever the API server accepted:
// an entry that we cannot read must not keep a whole list from being decoded.
func (p *RuntimePatch) UnmarshalJSON(data []byte) error {
	*p = RuntimePatch{raw: bytes.Clone(data)}
	// As the API server reads it: "Manager" is another field.
	var key struct {
		Manager    json.RawMessage `json:"manager"`
		TargetJobs json.RawMessage `json:"targetJobs"`
		Metadata   json.RawMessage `json:"metadata"`
	}
	_ = utiljson.Unmarshal(data, &key)
	_ = utiljson.Unmarshal(key.Manager, &p.Manager)
	p.marked = marked(key.Metadata)
	var targets []struct {
		Name string `json:"name"`
	}
	if err := utiljson.Unmarshal(key.TargetJobs, &targets); err != nil {
		return nil //nolint:nilerr // An entry that we cannot read must not keep a whole list from being decoded.
	}
	for _, target := range targets {
		p.TargetJobs = append(p.TargetJobs, target.Name)
	}
	return nil
}

// marked reports whether the metadata of an override has our mark. Metadata that cannot be read has none.
func marked(metadata json.RawMessage) bool {
	var read struct {
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
	}
	return utiljson.Unmarshal(metadata, &read) == nil && read.Annotations[ManagerAnnotation] == Manager
}

// MarshalJSON returns the bytes back.
func (p RuntimePatch) MarshalJSON() ([]byte, error) {
	if p.raw == nil {
		return []byte("null"), nil
	}
	return p.raw, nil
}

// SemanticallyEqual reports whether two JSON values differ at the most in how amounts are
// written: 8 and "8", "1024Mi" and "1Gi". Only where the Kubernetes API has amounts
// are they taken for such. Anything that is not JSON is not the same.
func SemanticallyEqual(a, b []byte) bool {
	left, err := decodeNumbers(a)
	if err != nil {
		return false
	}
	right, err := decodeNumbers(b)
	return err == nil && sameMeaning(left, right)
}

// SameButTime reports whether two entries differ at the most in how amounts are written, and in
// the time that Trainer's webhook writes. What is no object is the same by its bytes.
func (p RuntimePatch) SameButTime(o RuntimePatch) bool {
	left, right := p.Fields(), o.Fields()
	if left == nil || right == nil {
		return p.Equal(o)
	}
	delete(left, "time")
	delete(right, "time")
	return sameMeaning(left, right)
}

func decodeNumbers(data []byte) (value any, err error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	err = decoder.Decode(&value)
	return value, err
}

// sameMeaning compares values that nobody else has: their amounts are written in one way for that.
func sameMeaning(a, b any) bool {
	return reflect.DeepEqual(canonical(a, "", ""), canonical(b, "", ""))
}

// canonical returns a value that stands under a key, in the object that stands under another, with its amounts written
// in one way. Values of lists go by the list's keys.
func canonical(value any, in, key string) any {
	switch v := value.(type) {
	case map[string]any:
		for field := range v {
			v[field] = canonical(v[field], key, field)
		}
		if key == "resourceFieldRef" && v["divisor"] == "0" {
			delete(v, "divisor") // Kubernetes' types always write it.
		}
	case []any:
		for i := range v {
			v[i] = canonical(v[i], in, key)
		}
	default:
		if !isAmount(in, key) {
			break
		}
		if amount, err := resource.ParseQuantity(fmt.Sprint(v)); err == nil {
			return resource.NewDecimalQuantity(*amount.AsDec(), resource.DecimalSI).String()
		}
	}
	return value
}

// isAmount names the fields of core/v1 that hold a resource.Quantity, as far as pod
// templates have them. Labels and node selectors may have the same keys, with texts.
func isAmount(in, key string) bool {
	switch in {
	case "limits", "requests":
		return true
	case "emptyDir":
		return key == "sizeLimit"
	case "resourceFieldRef":
		return key == "divisor"
	}
	return false
}
