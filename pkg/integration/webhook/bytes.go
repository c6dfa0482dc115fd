// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"encoding/json"
	"fmt"

	"gomodules.xyz/jsonpatch/v2"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// immutableFields are the fields of spec that the TrainJob CRD compares with their
// old values, "self == oldSelf", which takes 8 and "8" for different.
var immutableFields = []string{"trainer", "initializer"}

// restoreFields undoes what Trainer's own defaulting webhook does to an update while
// it stamps a time: it writes every amount again, "nvidia.com/gpu: 8" becomes "8", drops
// what its types do not know, and the API server then refuses the update for changing
// an immutable field. It gives the operations that put the stored bytes back: where
// only their spelling changed, and always for our own writes, which never mean them.
func restoreFields(object, oldObject []byte, own bool) ([]jsonpatch.JsonPatchOperation, error) {
	given, err := specOf[specFields](object)
	if err != nil {
		return nil, err
	}
	stored, err := specOf[specFields](oldObject)
	if err != nil {
		return nil, err
	}
	var ops []jsonpatch.JsonPatchOperation
	for _, name := range immutableFields {
		now, old := given[name], stored[name]
		if len(now) > 0 && len(old) > 0 && !bytes.Equal(now, old) && (own || trainjob.SemanticallyEqual(now, old)) {
			ops = append(ops, jsonpatch.NewOperation("replace", "/spec/"+name, old))
		}
	}
	return ops, nil
}

type specFields = map[string]json.RawMessage

// specOf returns the spec of an object as it is written there, all of it or by fields.
func specOf[T json.RawMessage | specFields](object []byte) (T, error) {
	var fields struct {
		Spec T `json:"spec"`
	}
	err := json.Unmarshal(object, &fields)
	return fields.Spec, err
}

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
	spec, err := specOf[json.RawMessage](object)
	if err != nil || len(spec) <= maxSpecBytes {
		return errs, err
	}
	if oldObject != nil {
		if old, err := specOf[json.RawMessage](oldObject); err != nil || len(spec) <= len(old) {
			return errs, err
		}
	}
	return append(errs, field.Invalid(field.NewPath("spec"), fmt.Sprintf("%d bytes", len(spec)), fmt.Sprintf(
		"the spec of a TrainJob in a queue may have %d bytes as JSON, because its JobSet, Jobs, pods and Workload repeat it; put long variables, commands and arguments into a ConfigMap or a volume", maxSpecBytes))), nil
}
