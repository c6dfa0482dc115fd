// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"bytes"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
)

// SameMeaning reports whether two JSON values differ at the most in how amounts are
// written: 8 and "8", "1024Mi" and "1Gi". Anything that is not JSON is not the same.
func SameMeaning(a, b []byte) bool {
	left, err := decodeNumbers(a)
	if err != nil {
		return false
	}
	right, err := decodeNumbers(b)
	return err == nil && sameMeaning(left, right)
}

func decodeNumbers(data []byte) (value any, err error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	err = decoder.Decode(&value)
	return value, err
}

func sameMeaning(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		return ok && sameMaps(a, b)
	case []any:
		b, ok := b.([]any)
		return ok && sameLists(a, b)
	}
	return a == b || sameAmount(a, b)
}

func sameMaps(a, b map[string]any) bool {
	if len(a) != len(b) {
		return false
	}
	for key, value := range a {
		other, ok := b[key]
		if !ok || !sameMeaning(value, other) {
			return false
		}
	}
	return true
}

func sameLists(a, b []any) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !sameMeaning(a[i], b[i]) {
			return false
		}
	}
	return true
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
