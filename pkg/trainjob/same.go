// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
)

// SemanticallyEqual reports whether two JSON values differ at the most in how amounts are
// written: 8 and "8", "1024Mi" and "1Gi". Only where the Kubernetes API has amounts
// are they taken for such. Anything that is not JSON is not the same.
func SemanticallyEqual(a, b []byte) bool {
	left, err := decodeNumbers(a)
	if err != nil {
		return false
	}
	right, err := decodeNumbers(b)
	return err == nil && sameMeaning(left, right, "", "")
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
	return sameMeaning(left, right, "", "")
}

func decodeNumbers(data []byte) (value any, err error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	err = decoder.Decode(&value)
	return value, err
}

// sameMeaning compares values that stand under a key, in the object that stands under
// another. Values of lists go by the list's keys.
func sameMeaning(a, b any, in, key string) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		return ok && sameMaps(a, b, key)
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, func(x, y any) bool { return sameMeaning(x, y, in, key) })
	}
	return a == b || isAmount(in, key) && sameAmount(a, b)
}

func sameMaps(a, b map[string]any, key string) bool {
	if len(a) != len(b) {
		return false
	}
	for field, value := range a {
		if other, ok := b[field]; !ok || !sameMeaning(value, other, key, field) {
			return false
		}
	}
	return true
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

func sameAmount(a, b any) bool {
	left, ok := amount(a)
	if !ok {
		return false
	}
	right, ok := amount(b)
	return ok && left.Cmp(right) == 0
}

func amount(value any) (resource.Quantity, bool) {
	switch value.(type) {
	case string, json.Number:
		quantity, err := resource.ParseQuantity(fmt.Sprint(value))
		return quantity, err == nil
	}
	return resource.Quantity{}, false
}
