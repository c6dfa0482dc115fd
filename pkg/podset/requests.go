// SPDX-License-Identifier: Apache-2.0

package podset

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelpers "k8s.io/component-helpers/resource"
)

// defaultRequests sets the requests that a pod has none for as the API server does when it is created
// (pkg/apis/core/v1/defaults.go): limits for those of containers, what its containers request, or else its own limits, for
// those of the whole pod. Kueue looks for defaults of a LimitRange first, which a pod never gets where it has limits.
// Amounts of zero go: for one, Kueue would ask a PodSet to tolerate the taints of the resource's flavor.
func defaultRequests(pod *corev1.PodSpec) {
	for _, containers := range [][]corev1.Container{pod.InitContainers, pod.Containers} {
		for i := range containers {
			r := &containers[i].Resources
			r.Requests = withMissing(r.Requests, r.Limits)
			r.Requests, r.Limits = withoutZeros(r.Requests), withoutZeros(r.Limits)
		}
	}
	if r := pod.Resources; r != nil && len(r.Limits) > 0 {
		ofContainers := resourcehelpers.AggregateContainerRequests(&corev1.Pod{Spec: *pod}, resourcehelpers.PodResourcesOptions{})
		maps.DeleteFunc(ofContainers, func(name corev1.ResourceName, _ resource.Quantity) bool {
			return !resourcehelpers.IsSupportedPodLevelResource(name)
		})
		r.Requests = withMissing(withMissing(r.Requests, ofContainers), r.Limits)
		r.Requests, r.Limits = withoutZeros(r.Requests), withoutZeros(r.Limits)
	}
}

// withMissing returns amounts with those of others that are missing.
func withMissing(amounts, others corev1.ResourceList) corev1.ResourceList {
	if len(others) == 0 {
		return amounts
	}
	all := maps.Clone(others)
	maps.Copy(all, amounts)
	return all
}

func withoutZeros(amounts corev1.ResourceList) corev1.ResourceList {
	maps.DeleteFunc(amounts, func(_ corev1.ResourceName, amount resource.Quantity) bool { return amount.IsZero() })
	return amounts
}
