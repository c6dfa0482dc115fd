// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func TestHas(t *testing.T) {
	const wanted = "metadata: {name: a}\nspec: {replicas: 0, paused: false, args: [x, {y: z}], empty: {}}"
	for name, tt := range map[string]struct {
		live string
		want bool
	}{
		"the same":               {live: wanted, want: true},
		"defaults":               {live: "metadata: {name: a, uid: u}\nspec: {replicas: 0, paused: false, args: [x, {y: z, d: 1}], type: t}", want: true},
		"a changed zero":         {live: "metadata: {name: a}\nspec: {replicas: 1, paused: false, args: [x, {y: z}]}"},
		"a changed false":        {live: "metadata: {name: a}\nspec: {replicas: 0, paused: true, args: [x, {y: z}]}"},
		"one more in a list":     {live: "metadata: {name: a}\nspec: {replicas: 0, paused: false, args: [x, {y: z}, w]}"},
		"a field of a list less": {live: "metadata: {name: a}\nspec: {replicas: 0, paused: false, args: [x, {}]}"},
		"all is gone":            {live: "metadata: {name: a}"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := has(object(t, tt.live).Object, object(t, wanted).Object); got != tt.want {
				t.Errorf("has = %t, want %t", got, tt.want)
			}
		})
	}
}

func object(t *testing.T, manifest string) *unstructured.Unstructured {
	t.Helper()
	obj := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(manifest), &obj.Object); err != nil {
		t.Fatal(err)
	}
	return obj
}
