// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

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
