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
			equality.Semantic.DeepEqual(p.Resources, q.Resources) &&
			equality.Semantic.DeepEqual(p.RuntimeClassName, q.RuntimeClassName) &&
			equality.Semantic.DeepEqual(p.Overhead, q.Overhead) &&
			equality.Semantic.DeepEqual(p.ResourceClaims, q.ResourceClaims)
	})
}

// asksAlike compares the restart policy as well: an init container that has one runs on
// beside the others, and is charged with them.
func asksAlike(a, b corev1.Container) bool {
	return equality.Semantic.DeepEqual(a.Resources, b.Resources) && equality.Semantic.DeepEqual(a.RestartPolicy, b.RestartPolicy)
}
