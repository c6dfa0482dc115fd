// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
)

// SameMeaning reports whether two JSON values differ at the most in how amounts are
// written: 8 and "8", "1024Mi" and "1Gi". Only where the Kubernetes API has amounts
// are they taken for such. Anything that is not JSON is not the same.
func SameMeaning(a, b []byte) bool {
	left, err := decodeNumbers(a)
	if err != nil {
		return false
	}
	right, err := decodeNumbers(b)
	return err == nil && sameMeaning(left, right, "")
}

func decodeNumbers(data []byte) (value any, err error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	err = decoder.Decode(&value)
	return value, err
}

// sameMeaning compares the values of one key. Values of lists go by the list's key,
// and those of a resource list by its own: limits and requests.
func sameMeaning(a, b any, key string) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		return ok && sameMaps(a, b, key)
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, func(x, y any) bool { return sameMeaning(x, y, key) })
	}
	return a == b || isAmount(key) && sameAmount(a, b)
}

func sameMaps(a, b map[string]any, key string) bool {
	if len(a) != len(b) {
		return false
	}
	for field, value := range a {
		other, ok := b[field]
		if isResourceList(key) {
			field = key
		}
		if !ok || !sameMeaning(value, other, field) {
			return false
		}
	}
	return true
}

func isResourceList(key string) bool { return key == "limits" || key == "requests" }

// isAmount names the fields of core/v1 that hold a resource.Quantity, as far as pod
// templates have them.
func isAmount(key string) bool {
	return isResourceList(key) || key == "sizeLimit" || key == "divisor"
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
