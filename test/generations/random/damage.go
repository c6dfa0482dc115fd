// SPDX-License-Identifier: Apache-2.0

package random

import "strings"

// Bare is a TrainJob with the given spec and nothing else.
func (s Source) Bare(spec Object) Object {
	spec["runtimeRef"] = Object{"name": "runtime", "apiGroup": "trainer.kubeflow.org", "kind": "ClusterTrainingRuntime"}
	return Object{
		"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob",
		"metadata": Object{"name": "job", "namespace": "ns", "uid": "uid"}, "spec": spec,
	}
}

// Damage does things to parts of a value in place that an API server may refuse.
func (s Source) Damage(value any) {
	s.walk(value, func(object Object, key string) {
		switch s.IntN(16) {
		case 0:
			delete(object, key)
		case 1:
			object[key] = nil
		case 2:
			object[key] = one(s, []any{7, "x", "", true, []any{}, Object{}})
		case 3:
			object[one(s, []string{"command", "image", "resources", "terminationGracePeriodSeconds", "securityContext", "time", "other", "uid", "finalizers"})] = one(s, []any{-1, 30, Object{}, "x"})
		case 4, 5, 6:
			s.damageName(object, key)
		case 7, 8, 9, 10, 11, 12, 13:
			s.damageList(object, key)
		}
	})
}

func (s Source) damageName(object Object, key string) {
	if _, ok := object[key].(string); ok && (key == "name" || key == "manager" || key == "serviceAccountName") {
		object[key] = one(s, []any{
			"", "none", "node", "a.io/x", "A.io/x", "a.io/", "a.io/x y", "a.io/x/y",
			strings.Repeat("ü", 253), strings.Repeat("x", 254), "a.io/" + strings.Repeat("x", 248), "a.io/" + strings.Repeat("x", 249),
		})
	}
}

func (s Source) damageList(object Object, key string) {
	items, ok := object[key].([]any)
	if !ok || len(items) == 0 {
		return
	}
	if s.IntN(20) == 0 {
		for i := range one(s, []int{16, 64, 128}) {
			items = append(items, Object{"name": strings.Repeat("n", i+1), "key": "k"})
		}
		object[key] = items
		return
	}
	if key == "imagePullSecrets" {
		object[key] = append(items, Object{}) // Trainer panics at two lists with one without a name.
		return
	}
	object[key] = append(items, items[s.IntN(len(items))])
}

// walk visits few of the fields in a value.
func (s Source) walk(value any, visit func(Object, string)) {
	switch value := value.(type) {
	case []any:
		for _, item := range value {
			s.walk(item, visit)
		}
	case Object:
		for _, key := range sorted(value) {
			s.walk(value[key], visit)
			if s.IntN(24) == 0 {
				visit(value, key)
			}
		}
	}
}
