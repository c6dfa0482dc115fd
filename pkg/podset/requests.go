// SPDX-License-Identifier: Apache-2.0

package podset

import (
	"maps"
	"strings"

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
			requestLimits(&containers[i].Resources)
		}
	}
	if r := pod.Resources; r != nil {
		dropOvercommitted(r, resourcehelpers.AggregateContainerRequests(&corev1.Pod{Spec: *pod}, resourcehelpers.PodResourcesOptions{}))
		requestLimits(r)
	}
}

// dropOvercommitted drops the limits of a pod beside which its containers' requests are charged: Kueue adds these up itself,
// with what a LimitRange has the others request, as Kubernetes does since 1.37. Huge pages cannot be overcommitted.
func dropOvercommitted(r *corev1.ResourceRequirements, ofContainers corev1.ResourceList) {
	maps.DeleteFunc(r.Limits, func(name corev1.ResourceName, _ resource.Quantity) bool {
		_, own := r.Requests[name]
		_, asked := ofContainers[name]
		return asked && !own && !strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
	})
}

// requestLimits requests limits where a request is missing, and drops resources of which nothing may be used. A request of
// zero below a limit stays, or Kueue would take the limit for it.
func requestLimits(r *corev1.ResourceRequirements) {
	r.Requests = kueuelib.WithMissing(r.Requests, r.Limits)
	for name, limit := range r.Limits {
		if limit.IsZero() {
			delete(r.Limits, name)
			delete(r.Requests, name)
		}
	}
}
