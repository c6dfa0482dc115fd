// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// keyedList is a list of the CRD with a key.
type keyedList struct {
	field string
	// key names an item; keys must be unique. Empty: the list has none.
	key string
	// named items need a key of 1 to 253 characters, without the upper bound in 2.1.
	named bool
	// most items, which counts since 2.2.
	most int
}

// maxEntries: CRD since 2.2, maxItems of runtimePatches.
const maxEntries = 16

// CRD: x-kubernetes-list-map-keys, minLength, maxLength and maxItems.
var (
	jobList  = keyedList{field: "replicatedJobs", key: "name", named: true, most: 100}
	podLists = []keyedList{
		{field: "volumes", key: "name", most: 128},
		{field: "initContainers", key: "name", named: true, most: 64},
		{field: "containers", key: "name", named: true, most: 64},
		{field: "imagePullSecrets", key: "name", most: 64},
		{field: "tolerations", most: 128},
		{field: "schedulingGates", key: "name", most: 16},
	}
	containerLists = []keyedList{
		{field: "env", key: "name", most: 128},
		// A volume can be mounted into a container once: the key is not the path.
		{field: "volumeMounts", key: "name", most: 128},
	}
)

func (l keyedList) check(path *field.Path, value any, newer bool) field.ErrorList {
	var errs field.ErrorList
	items := objects(value)
	if newer && len(items) > l.most {
		errs = append(errs, field.TooMany(path, len(items), l.most))
	}
	seen := sets.New[string]()
	for i, item := range items {
		if l.key == "" {
			continue
		}
		key, _ := item[l.key].(string)
		if l.named {
			errs = append(errs, checkName(path.Index(i).Child(l.key), key, newer)...)
		}
		if seen.Has(key) {
			errs = append(errs, field.Duplicate(path.Index(i).Child(l.key), key))
		}
		seen.Insert(key)
	}
	return errs
}

func checkName(path *field.Path, value string, newer bool) field.ErrorList {
	if newer {
		return length(path, value, 253)
	}
	if value == "" {
		return field.ErrorList{field.Required(path, "it must not be empty")}
	}
	return nil
}
