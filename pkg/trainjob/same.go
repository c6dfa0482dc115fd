// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"

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
