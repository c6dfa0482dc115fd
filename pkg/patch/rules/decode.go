// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
)

// Decode reads JSON as a T and leaves out each value that has another type than its field.
// There is an error for each of them.
func Decode[T any](data []byte) (T, field.ErrorList) {
	value, _, errs := decodeStrict[T](data)
	return value, errs
}

// decodeStrict also tells, as strict, of the fields that T does not have.
func decodeStrict[T any](data []byte) (value T, strict []error, errs field.ErrorList) {
	read := func(data []byte) error {
		value = *new(T)
		var err error
		strict, err = kjson.UnmarshalStrict(data, &value)
		return err
	}
	for read(data) != nil {
		path, rest, err := culprit(nil, data, read)
		errs = append(errs, mistyped(path, err))
		if path == nil || bytes.Equal(rest, data) {
			return *new(T), nil, errs
		}
		data = rest
	}
	return value, strict, errs
}

// culprit finds the innermost value that cannot be read, by reading it with nothing beside
// it: what custom types say of their values names no field, and Go's own errors no item of
// a list. It returns the data with a null, which every type takes, in its place.
func culprit(path *field.Path, data json.RawMessage, read func([]byte) error) (*field.Path, json.RawMessage, error) {
	var fields map[string]json.RawMessage
	var items []json.RawMessage
	switch {
	case json.Unmarshal(data, &fields) == nil:
		for _, key := range slices.Sorted(maps.Keys(fields)) {
			alone := func(value []byte) error { return read(encoded(map[string]json.RawMessage{key: value})) }
			if alone(fields[key]) != nil {
				at, rest, err := culprit(below(path, key), fields[key], alone)
				fields[key] = rest
				return at, encoded(fields), err
			}
		}
	case json.Unmarshal(data, &items) == nil:
		for i := range items {
			alone := func(value []byte) error { return read(encoded([]json.RawMessage{value})) }
			if alone(items[i]) != nil {
				at, rest, err := culprit(path.Index(i), items[i], alone)
				items[i] = rest
				return at, encoded(items), err
			}
		}
	}
	return path, json.RawMessage("null"), read(data)
}

// below is the path of a field or, where it could not be told from two fields, of a key.
func below(path *field.Path, key string) *field.Path {
	if strings.ContainsAny(key, "./") {
		return path.Key(key)
	}
	return path.Child(key)
}

// encoded is for maps and lists of JSON, which can always be encoded.
func encoded(value any) json.RawMessage {
	data, _ := json.Marshal(value)
	return data
}

// mistyped tells of a value that has another type than its field.
func mistyped(path *field.Path, err error) *field.Error {
	for _, quantity := range []error{resource.ErrFormatWrong, resource.ErrNumeric, resource.ErrSuffix} {
		if errors.Is(err, quantity) {
			return field.Invalid(path, field.OmitValueType{}, "it must be an amount, such as 8 or 16Gi")
		}
	}
	if mismatch := new(json.UnmarshalTypeError); errors.As(err, &mismatch) {
		return field.TypeInvalid(path, field.OmitValueType{},
			fmt.Sprintf("it must be %s and is a %s", kindOf(mismatch.Type), mismatch.Value))
	}
	return field.Invalid(path, field.OmitValueType{}, err.Error())
}

// kindOf names a Go type as a JSON one.
func kindOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int32, reflect.Int64:
		return "a whole number"
	case reflect.Slice:
		return "a list"
	default:
		return "an object"
	}
}
