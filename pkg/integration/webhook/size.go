// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxSpecBytes is how large the spec of a queued TrainJob may be, as JSON. JobSet, Jobs and
// Workload hold its pods again, some with managed fields that are nearly as large, in 1.5
// MiB at the most, which is what etcd takes; and so do the caches of every controller. No
// larger manifest could be applied from a file, since kubectl keeps it in an annotation.
const maxSpecBytes = 256 << 10

// maxBytes is how large all of it may be: the annotations that the API server takes, and managed fields. Beyond what etcd
// takes nobody could suspend it any more.
const maxBytes = 1 << 20

// validateSize refuses a TrainJob that is too large, unless it was at least as large before.
func validateSize(object, oldObject []byte) (field.ErrorList, error) {
	var errs field.ErrorList
	if len(object) > maxBytes && len(object) > len(oldObject) {
		errs = append(errs, field.Invalid(field.NewPath("metadata"), fmt.Sprintf("%d bytes", len(object)), fmt.Sprintf(
			"a TrainJob in a queue may have %d bytes as JSON, or nobody could suspend it any more; take annotations away, and who manages them (metadata.managedFields)", maxBytes)))
	}
	size, err := specBytes(object)
	if err != nil || size <= maxSpecBytes {
		return errs, err
	}
	if oldObject != nil {
		if before, err := specBytes(oldObject); err != nil || size <= before {
			return errs, err
		}
	}
	return append(errs, field.Invalid(field.NewPath("spec"), fmt.Sprintf("%d bytes", size), fmt.Sprintf(
		"the spec of a TrainJob in a queue may have %d bytes as JSON, because its JobSet, Jobs, pods and Workload repeat it; put long variables, commands and arguments into a ConfigMap or a volume", maxSpecBytes))), nil
}

func specBytes(object []byte) (int, error) {
	var fields struct {
		Spec json.RawMessage `json:"spec"`
	}
	err := json.Unmarshal(object, &fields)
	return len(fields.Spec), err
}
