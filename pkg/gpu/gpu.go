// SPDX-License-Identifier: Apache-2.0

// Package gpu holds what is particular to NVIDIA GPUs in Kubernetes: how the device
// plugin names its resources, which taints GPU nodes carry, and what their labels tell
// of the pool that they are in.
package gpu

import (
	"cmp"
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

// passing are the taints, or beginnings of taints, of a node that starts, goes, or is not
// well: they say nothing about the pool that it is in. Others of node.kubernetes.io do, such as
// GKE's of the operating system.
var passing = []string{
	corev1.TaintNodeNotReady,
	corev1.TaintNodeUnreachable,
	corev1.TaintNodeUnschedulable,
	corev1.TaintNodeMemoryPressure,
	corev1.TaintNodeDiskPressure,
	corev1.TaintNodePIDPressure,
	corev1.TaintNodeNetworkUnavailable,
	corev1.TaintNodeOutOfService,
	"node.cloudprovider.kubernetes.io/",
	"startup-taint.cluster-autoscaler.kubernetes.io/",
	"ToBeDeletedByClusterAutoscaler",
	"DeletionCandidateOfClusterAutoscaler",
	"karpenter.sh/disrupt",
	"karpenter.sh/unregistered",
	"node.cilium.io/agent-not-ready",
	"ebs.csi.aws.com/agent-not-ready",
	"efs.csi.aws.com/agent-not-ready",
}

// Lasting returns the taints of a node that keep pods away as long as it is in its pool,
// sorted: GKE's nvidia.com/gpu=present, sku=gpu as Azure recommends it, a spot pool's, a
// team's own.
func Lasting(node *corev1.Node) []corev1.Taint {
	var lasting []corev1.Taint
	for _, taint := range node.Spec.Taints {
		comesAndGoes := slices.ContainsFunc(passing, func(key string) bool { return strings.HasPrefix(taint.Key, key) })
		if !comesAndGoes && taint.Effect != corev1.TaintEffectPreferNoSchedule {
			lasting = append(lasting, corev1.Taint{Key: taint.Key, Value: taint.Value, Effect: taint.Effect})
		}
	}
	slices.SortFunc(lasting, func(a, b corev1.Taint) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Value, b.Value), cmp.Compare(a.Effect, b.Effect))
	})
	return lasting
}

// Tolerated reports whether pods that ask for a GPU resource tolerate a taint by
// themselves, once they are placed: GKE, EKS, OpenShift and the GPU operator use such
// taints, under keys that name a resource. All others, Azure's sku=gpu among them, are
// for a flavor to tolerate.
func Tolerated(taint corev1.Taint, name corev1.ResourceName) bool {
	return slices.ContainsFunc(tolerationsFor([]corev1.ResourceName{name}), func(t corev1.Toleration) bool {
		return t.Key == taint.Key && t.Effect == taint.Effect
	})
}
