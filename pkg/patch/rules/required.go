// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

var (
	unmarshaler = reflect.TypeFor[json.Unmarshaler]()
	// projected has the one field that is marked optional although it is always written.
	projected = reflect.TypeFor[corev1.ProjectedVolumeSource]()
)

// required: CRD, required. controller-gen requires a field that its Go type writes even
// when empty and that is no pointer; Trainer's own fields, which are marked by comments, have rules of their own.
// The API server takes a null for nothing.
func required(path *field.Path, value any, t reflect.Type) field.ErrorList {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if reflect.PointerTo(t).Implements(unmarshaler) {
		return nil
	}
	switch value := value.(type) {
	case []any:
		return requiredInList(path, value, t)
	case object:
		if t.Kind() == reflect.Struct {
			return requiredInStruct(path, value, t)
		}
	}
	return nil
}

func requiredInList(path *field.Path, items []any, t reflect.Type) field.ErrorList {
	var errs field.ErrorList
	if t.Kind() != reflect.Slice {
		return nil
	}
	for i, item := range items {
		errs = append(errs, required(path.Index(i), item, t.Elem())...)
	}
	return errs
}

func requiredInStruct(path *field.Path, fields object, t reflect.Type) field.ErrorList {
	var errs field.ErrorList
	for _, f := range reflect.VisibleFields(t) {
		key, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous || key == "" || key == "-" {
			continue
		}
		if fields[key] == nil {
			if options == "" && f.Type.Kind() != reflect.Pointer && t != projected {
				errs = append(errs, field.Required(path.Child(key), fmt.Sprintf("set %s", key)))
			}
			continue
		}
		errs = append(errs, required(path.Child(key), fields[key], f.Type)...)
	}
	return errs
}
