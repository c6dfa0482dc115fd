// SPDX-License-Identifier: Apache-2.0

package podset

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelpers "k8s.io/component-helpers/resource"

	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
)

// defaultRequests sets the requests that a pod has none for as the API server does when it is created
// (pkg/apis/core/v1/defaults.go): limits for those of containers, what its containers request, or else its own limits, for
// those of the whole pod. Kueue looks for defaults of a LimitRange first, which a pod never gets where it has limits.
// Resources with a limit of zero go: for one, Kueue would ask a PodSet to tolerate the taints of the resource's flavor.
func defaultRequests(pod *corev1.PodSpec) {
	for _, containers := range [][]corev1.Container{pod.InitContainers, pod.Containers} {
		for i := range containers {
			r := &containers[i].Resources
			r.Requests = kueuelib.WithMissing(r.Requests, r.Limits)
			dropZeroLimits(r)
		}
	}
	if r := pod.Resources; r != nil && len(r.Limits) > 0 {
		ofContainers := resourcehelpers.AggregateContainerRequests(&corev1.Pod{Spec: *pod}, resourcehelpers.PodResourcesOptions{})
		maps.DeleteFunc(ofContainers, func(name corev1.ResourceName, _ resource.Quantity) bool {
			return !resourcehelpers.IsSupportedPodLevelResource(name)
		})
		r.Requests = kueuelib.WithMissing(kueuelib.WithMissing(r.Requests, ofContainers), r.Limits)
		dropZeroLimits(r)
	}
}

// dropZeroLimits drops resources of which nothing may be used. A request of zero below a limit stays, or Kueue would take
// the limit for it.
func dropZeroLimits(r *corev1.ResourceRequirements) {
	for name, limit := range r.Limits {
		if limit.IsZero() {
			delete(r.Limits, name)
			delete(r.Requests, name)
		}
	}
}
