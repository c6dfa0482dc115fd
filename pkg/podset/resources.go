// SPDX-License-Identifier: Apache-2.0

package podset

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// SameResources reports whether two lists of PodSets are charged alike: as many pods of the
// same names, which ask for the same resources, the overhead of their runtime class among them. What else the pods run is left out.
func SameResources(a, b []kueue.PodSet) bool {
	return slices.EqualFunc(a, b, func(x, y kueue.PodSet) bool {
		p, q := &x.Template.Spec, &y.Template.Spec
		return x.Name == y.Name && x.Count == y.Count &&
			slices.EqualFunc(p.InitContainers, q.InitContainers, asksAlike) &&
			slices.EqualFunc(p.Containers, q.Containers, asksAlike) &&
			differsBesideContainers(p, q) == ""
	})
}

// besideContainers are the fields by which pods are charged beside their containers.
var besideContainers = []struct {
	name  string
	value func(*corev1.PodSpec) any
}{
	{"runtimeClassName", func(p *corev1.PodSpec) any { return p.RuntimeClassName }},
	{"overhead", func(p *corev1.PodSpec) any { return p.Overhead }},
	{"resources", func(p *corev1.PodSpec) any { return p.Resources }},
	{"resourceClaims", func(p *corev1.PodSpec) any { return p.ResourceClaims }},
}

// differsBesideContainers returns the first of these fields in which pods differ; empty: in none.
func differsBesideContainers(a, b *corev1.PodSpec) string {
	for _, field := range besideContainers {
		if !equality.Semantic.DeepEqual(field.value(a), field.value(b)) {
			return field.name
		}
	}
	return ""
}

// asksAlike compares the restart policy as well: an init container that has one runs on
// beside the others, and is charged with them.
func asksAlike(a, b corev1.Container) bool {
	return equality.Semantic.DeepEqual(a.Resources, b.Resources) && equality.Semantic.DeepEqual(a.RestartPolicy, b.RestartPolicy)
}
