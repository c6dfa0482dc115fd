// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// PodTemplateOverride is one entry of spec.podTemplateOverrides of Trainer 2.1: the
// replicated jobs it is for, and its bytes.
type PodTemplateOverride struct {
	// TargetJobs names them in the entry's order; nil when the entry cannot be read.
	TargetJobs []string

	raw json.RawMessage
}

// NewPodTemplateOverride encodes an entry of our own making.
func NewPodTemplateOverride(entry any) (PodTemplateOverride, error) {
	raw, err := json.Marshal(entry)
	if err != nil {
		return PodTemplateOverride{}, fmt.Errorf("encoding a pod template override: %w", err)
	}
	var override PodTemplateOverride
	err = override.UnmarshalJSON(raw)
	return override, err
}

// Decode reads the entry into a type with the fields that matter.
func (o PodTemplateOverride) Decode(into any) error {
	if err := utiljson.Unmarshal(o.raw, into); err != nil {
		return fmt.Errorf("decoding a pod template override: %w", err)
	}
	return nil
}

// SemanticallyEqual reports whether two entries differ at the most in how amounts are written.
func (o PodTemplateOverride) SemanticallyEqual(p PodTemplateOverride) bool {
	return SemanticallyEqual(o.raw, p.raw)
}

// Targets reports whether the entry is for a replicated job.
func (o PodTemplateOverride) Targets(job string) bool {
	return slices.Contains(o.TargetJobs, job)
}

// Equal reports whether two entries are the same bytes.
func (o PodTemplateOverride) Equal(p PodTemplateOverride) bool {
	return bytes.Equal(o.raw, p.raw)
}

// UnmarshalJSON keeps the bytes. Like that of RuntimePatch it accepts what the API
// server accepted.
func (o *PodTemplateOverride) UnmarshalJSON(data []byte) error {
	var key struct {
		TargetJobs []struct {
			Name string `json:"name"`
		} `json:"targetJobs"`
	}
	*o = PodTemplateOverride{raw: bytes.Clone(data)}
	if err := utiljson.Unmarshal(data, &key); err != nil {
		return nil //nolint:nilerr // An entry that we cannot read must not keep a whole list from being decoded.
	}
	for _, target := range key.TargetJobs {
		o.TargetJobs = append(o.TargetJobs, target.Name)
	}
	return nil
}

// MarshalJSON returns the bytes back.
func (o PodTemplateOverride) MarshalJSON() ([]byte, error) {
	if o.raw == nil {
		return []byte("null"), nil
	}
	return o.raw, nil
}
