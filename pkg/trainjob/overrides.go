// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"bytes"
	"encoding/json"
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

// MarshalJSON gives the bytes back.
func (o PodTemplateOverride) MarshalJSON() ([]byte, error) {
	if o.raw == nil {
		return []byte("null"), nil
	}
	return o.raw, nil
}
