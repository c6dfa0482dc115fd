// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"encoding/json"

	"gomodules.xyz/jsonpatch/v2"

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
	given, err := specFields(object)
	if err != nil {
		return nil, err
	}
	stored, err := specFields(oldObject)
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

func specFields(object []byte) (map[string]json.RawMessage, error) {
	var fields struct {
		Spec map[string]json.RawMessage `json:"spec"`
	}
	err := json.Unmarshal(object, &fields)
	return fields.Spec, err
}
