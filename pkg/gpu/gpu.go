// SPDX-License-Identifier: Apache-2.0

// Package gpu holds what is particular to NVIDIA GPUs in Kubernetes: how the device
// plugin names its resources, which taints GPU nodes carry, and what their labels tell
// of the pool that they are in.
//
// gpu.go knows the resources and their tolerations, taints.go the taints, labels.go what labels
// say; pools.go groups nodes into pools, and pick.go finds the labels that pick a pool's nodes.
package gpu

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/kueue-trainer/kueue-trainer/pkg/quantity"
)

// Whole is the resource of a whole GPU, of a MIG slice under the single strategy,
// and of a time-shared GPU whose resource was not renamed.
const Whole corev1.ResourceName = "nvidia.com/gpu"

const (
	shared corev1.ResourceName = "nvidia.com/gpu.shared"

	migPrefix = "nvidia.com/mig-"
	// The device plugin can append this to a shared MIG profile too.
	sharedSuffix = ".shared"
)

// IsResource reports whether the NVIDIA device plugin serves name as a GPU: whole,
// shared, or a MIG profile (nvidia.com/mig-1g.10gb and the like).
func IsResource(name corev1.ResourceName) bool {
	if name == Whole || name == shared {
		return true
	}
	profile, ok := strings.CutPrefix(string(name), migPrefix)
	return ok && strings.TrimSuffix(profile, sharedSuffix) != ""
}

// Resources returns the GPU resources that a pod asks for in its containers and init
// containers, sorted, each once. Zero amounts do not count.
func Resources(pod *corev1.PodSpec) []corev1.ResourceName {
	return slices.DeleteFunc(sets.List(quantity.Asked(pod)), func(name corev1.ResourceName) bool { return !IsResource(name) })
}

// Tolerations returns what a pod needs to reach the nodes of the GPUs it asks for, or
// nil when it asks for none.
func Tolerations(pod *corev1.PodSpec) []corev1.Toleration { return tolerationsFor(Resources(pod)) }

// tolerationsFor: providers taint GPU nodes with key nvidia.com/gpu and differing values;
// Kubernetes' ExtendedResourceToleration plugin uses the exact resource name as key, which
// for MIG and shared GPUs is another one: both are there.
func tolerationsFor(names []corev1.ResourceName) []corev1.Toleration {
	if len(names) == 0 {
		return nil
	}
	if !slices.Contains(names, Whole) {
		names = append([]corev1.ResourceName{Whole}, names...)
	}
	tolerations := make([]corev1.Toleration, 0, len(names))
	for _, name := range names {
		tolerations = append(tolerations, corev1.Toleration{
			Key: string(name), Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule,
		})
	}
	return tolerations
}
