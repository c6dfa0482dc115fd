// SPDX-License-Identifier: Apache-2.0

package podset

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// TolerationRule gives pods that ask for some resources what they need to reach the nodes
// of these, as pkg/gpu does for NVIDIA's.
type TolerationRule struct {
	// Resources are names, or beginnings of names that end in "*".
	Resources []string
	// Tolerations that such pods get, unless they have the same ones.
	Tolerations []corev1.Toleration
}

// AddTolerations applies rules to PodSets, in place. It has to be done wherever PodSets are
// described, before Kueue sees them, and the same way every time: Kueue compares them.
func AddTolerations(podSets []kueue.PodSet, rules []TolerationRule) {
	for i := range podSets {
		pod := &podSets[i].Template.Spec
		for _, rule := range rules {
			if rule.appliesTo(pod) {
				pod.Tolerations = union(pod.Tolerations, rule.Tolerations)
			}
		}
	}
}

func (r TolerationRule) appliesTo(pod *corev1.PodSpec) bool {
	return slices.ContainsFunc(slices.Concat(pod.InitContainers, pod.Containers), func(c corev1.Container) bool {
		return r.matches(c.Resources.Requests) || r.matches(c.Resources.Limits)
	})
}

func (r TolerationRule) matches(amounts corev1.ResourceList) bool {
	for name, amount := range amounts {
		if !amount.IsZero() && slices.ContainsFunc(r.Resources, func(pattern string) bool { return matches(pattern, string(name)) }) {
			return true
		}
	}
	return false
}

func matches(pattern, name string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(name, prefix)
	}
	return pattern == name
}
