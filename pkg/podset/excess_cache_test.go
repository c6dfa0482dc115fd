// SPDX-License-Identifier: Apache-2.0

package podset

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// A quantity like 1.5Gi is kept behind a pointer, and what is compared may be a cache's.
func TestRequestsOfLeavesTheSpecAsItIs(t *testing.T) {
	memory := resource.MustParse("1.5Gi")
	spec := &corev1.PodSpec{
		Resources: &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceMemory: memory}},
		Overhead:  corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")},
	}
	first := requestsOf(spec)[corev1.ResourceMemory]
	if again := requestsOf(spec)[corev1.ResourceMemory]; again.Cmp(first) != 0 {
		t.Errorf("The second time it asks for %s, the first time for %s", again.String(), first.String())
	}
	if now := spec.Resources.Requests[corev1.ResourceMemory]; now.Cmp(resource.MustParse("1.5Gi")) != 0 {
		t.Errorf("The spec asks for %s by now", now.String())
	}
}
