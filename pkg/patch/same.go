// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"encoding/json"
	"reflect"
	"strings"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// sameWithoutTime compares two entries as JSON values, so that field order and
// white space do not count.
func sameWithoutTime(a, b trainjob.RuntimePatch) bool {
	left, err := withoutTime(a)
	if err != nil {
		return false
	}
	right, err := withoutTime(b)
	return err == nil && reflect.DeepEqual(left, right)
}

func withoutTime(p trainjob.RuntimePatch) (map[string]any, error) {
	data, err := p.MarshalJSON()
	if err != nil {
		return nil, err
	}
	var value map[string]any
	decoder := json.NewDecoder(strings.NewReader(string(data)))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	delete(value, "time")
	return value, nil
}
