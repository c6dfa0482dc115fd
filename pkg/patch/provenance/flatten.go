// SPDX-License-Identifier: Apache-2.0

package provenance

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

// place is where a field is; see Field.
type place struct {
	job, path string
}

// eachItem calls do with all that the field is inside of.
func (p place) eachItem(do func(place)) {
	for end := range p.path {
		if p.path[end] == '.' {
			do(place{p.job, p.path[:end]})
		}
	}
}

// values are the fields of one source.
type values map[place]json.RawMessage

// jobSchema tells which lists of a Job template have a key.
var jobSchema strategicpatch.LookupPatchMeta = strategicpatch.PatchMetaFromStruct{T: reflect.TypeFor[batchv1.JobTemplateSpec]()}

// ofJobSet returns the fields of a JobSet, or of the template of one.
func ofJobSet(metadata *metav1.ObjectMeta, spec *jobsetapi.JobSetSpec) values {
	all := values{}
	all.addMetadata(metadata.Labels, metadata.Annotations)
	for i := range spec.ReplicatedJobs {
		all.addTemplate(spec.ReplicatedJobs[i].Name, &spec.ReplicatedJobs[i].Template)
	}
	return all
}

// addMetadata adds what is said of the JobSet itself.
func (v values) addMetadata(labels, annotations map[string]string) {
	for key, value := range labels {
		v.set("", "metadata.labels["+key+"]", value)
	}
	for key, value := range annotations {
		v.set("", "metadata.annotations["+key+"]", value)
	}
}

// addTemplate adds the fields of a Job template, or of a patch of one. What was decoded from JSON before can be encoded.
func (v values) addTemplate(job string, template any) {
	data, _ := json.Marshal(template)
	var tree map[string]any
	_ = json.Unmarshal(data, &tree)
	v.addObject(job, "", tree, jobSchema)
}

func (v values) set(job, path string, value any) {
	data, _ := json.Marshal(value)
	v[place{job, path}] = data
}

func (v values) addObject(job, path string, fields map[string]any, schema strategicpatch.LookupPatchMeta) {
	for key, value := range fields {
		next := path + "[" + key + "]"
		if isStruct(schema) {
			next = strings.TrimPrefix(path+"."+key, ".")
		}
		v.addValue(job, next, key, value, schema)
	}
}

// addValue adds the value that stands under a key: the fields of objects, the items of
// lists with a key, and anything else as it is.
func (v values) addValue(job, path, key string, value any, schema strategicpatch.LookupPatchMeta) {
	switch value := value.(type) {
	case nil:
		return
	case map[string]any:
		inner, _, err := schema.LookupPatchMetadataForStruct(key)
		switch {
		case err == nil && len(value) > 0:
			v.addObject(job, path, value, inner)
			return
		case err == nil && inner.(strategicpatch.PatchMetaFromStruct).T.Kind() == reflect.Struct:
			return // Go writes it whether it says something or not, unlike an emptyDir: {}.
		}
	case []any:
		items, meta, err := schema.LookupPatchMetadataForSlice(key)
		mergeKey := meta.GetPatchMergeKey()
		if err == nil && mergeKey != "" && slices.Contains(meta.GetPatchStrategies(), "merge") {
			v.addItems(job, path, value, mergeKey, items)
			return
		}
	}
	v.set(job, path, value)
}

// addItems adds the fields of each item but its key, which is in the path. An item that
// is nothing but its key is a field itself. Where the API has more keys than a merge goes
// by (ports have a protocol) items with the same one are counted.
func (v values) addItems(job, path string, list []any, mergeKey string, schema strategicpatch.LookupPatchMeta) {
	seen := map[string]int{}
	for _, item := range list {
		fields, _ := item.(map[string]any)
		key := fmt.Sprint(fields[mergeKey])
		if seen[key]++; seen[key] > 1 {
			key = fmt.Sprintf("%s#%d", key, seen[key])
		}
		at := path + "[" + key + "]"
		if len(fields) == 1 {
			v.set(job, at, item)
			continue
		}
		delete(fields, mergeKey)
		v.addObject(job, at, fields, schema)
	}
}

// isStruct reports whether a schema is of an object with fields, and not of a map.
func isStruct(schema strategicpatch.LookupPatchMeta) bool {
	t := schema.(strategicpatch.PatchMetaFromStruct).T
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Kind() == reflect.Struct
}
