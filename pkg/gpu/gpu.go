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

// Labels that NVIDIA's GPU Feature Discovery and MIG manager put on nodes.
const (
	// ProductLabel names the model. Under MIG's single strategy it ends in the profile
	// (A100-SXM4-40GB-MIG-1g.5gb), where GPUs are shared in -SHARED.
	ProductLabel = "nvidia.com/gpu.product"
	// countLabel is how many GPUs, or slices under the single strategy, a node has.
	countLabel = "nvidia.com/gpu.count"
	// MemoryLabel is the memory of one GPU or slice in MiB.
	MemoryLabel = "nvidia.com/gpu.memory"
	// CliqueLabel names the NVLink partition: ClusterUUID.CliqueID.
	CliqueLabel = "nvidia.com/gpu.clique"
	// migConfigLabel names the layout that MIG manager made on a node: all-1g.10gb.
	migConfigLabel = "nvidia.com/mig.config"
	// sharingLabel is how GPUs are shared: none, time-slicing or mps.
	sharingLabel = "nvidia.com/gpu.sharing-strategy"
	// replicasLabel is among how many a GPU is shared.
	replicasLabel = "nvidia.com/gpu.replicas"
)

// What GKE says of GPUs with labels of its own; GPU Feature Discovery need not run there.
const (
	gkeAccelerator = "cloud.google.com/gke-accelerator"
	gkePartition   = "cloud.google.com/gke-gpu-partition-size"
	gkeSharing     = "cloud.google.com/gke-gpu-sharing-strategy"
)

// productLabels say which GPU a node has, the most telling first.
var productLabels = []string{
	ProductLabel,
	gkeAccelerator,
	"eks.amazonaws.com/instance-gpu-name",
	"karpenter.k8s.aws/instance-gpu-name",
	corev1.LabelInstanceTypeStable,
}

// layoutLabels say how the GPUs of a node are divided.
var layoutLabels = []string{migConfigLabel, sharingLabel, replicasLabel, gkePartition, gkeSharing}

// nodePoolLabels name the group of machines that a provider made a node in.
var nodePoolLabels = []string{
	"cloud.google.com/gke-nodepool",
	"eks.amazonaws.com/nodegroup",
	"alpha.eksctl.io/nodegroup-name",
	"karpenter.sh/nodepool",
	"kubernetes.azure.com/agentpool",
	"machine.openshift.io/cluster-api-machineset",
	"node.kubernetes.io/instancegroup",
	"doks.digitalocean.com/node-pool",
	"oke.oraclecloud.com/pool.name",
	PoolLabel,
}

// NodePoolLabel names the label by which a provider tells the group of machines that a node is of; empty
// where none made it.
func NodePoolLabel(node *corev1.Node) string {
	for _, label := range nodePoolLabels {
		if node.Labels[label] != "" && label != PoolLabel {
			return label
		}
	}
	return ""
}

// PoolLabel is for nodes that no other label tells apart; an admin sets it.
const PoolLabel = "kueue-trainer.dev/pool"

// levelLabels are the levels of a topology that labels tell of, the widest first. Each
// family is one provider's, or one tool's; a node has those of one.
var levelLabels = []string{
	corev1.LabelTopologyZone,
	"cloud.google.com/gce-topology-block",
	"cloud.google.com/gce-topology-subblock",
	"topology.k8s.aws/network-node-layer-1",
	"topology.k8s.aws/network-node-layer-2",
	"topology.k8s.aws/network-node-layer-3",
	"oci.oraclecloud.com/rdma.hpc_island_id",
	"oci.oraclecloud.com/rdma.network_block_id",
	"oci.oraclecloud.com/rdma.local_block_id",
	"network.topology.nvidia.com/core",
	"network.topology.nvidia.com/spine",
	"network.topology.nvidia.com/leaf",
	"network.topology.nvidia.com/accelerator",
	CliqueLabel,
	corev1.LabelHostname,
}

// Levels returns the labels that place nodes in a topology, from the widest to the node
// itself: those that every one of them has.
func Levels(nodes []*corev1.Node) []string {
	var levels []string
	for _, label := range levelLabels {
		if len(nodes) > 0 && !slices.ContainsFunc(nodes, func(node *corev1.Node) bool { return node.Labels[label] == "" }) {
			levels = append(levels, label)
		}
	}
	return levels
}

// Product names the GPUs of a node as its labels do, or is empty.
func Product(node *corev1.Node) string {
	for _, label := range productLabels {
		if value := node.Labels[label]; value != "" {
			return value
		}
	}
	return ""
}

// Slicing is how a GPU resource of a node comes from its GPUs.
type Slicing string

// The ways.
const (
	// WholeGPUs are not divided.
	WholeGPUs Slicing = "whole"
	// MIG divides a GPU's memory and processors.
	MIG Slicing = "mig"
	// Shared GPUs are promised to several pods at a time.
	Shared Slicing = "shared"
)

// slicingOf tells what one unit of nvidia.com/gpu, or of another GPU resource, is on a
// node.
func slicingOf(node *corev1.Node, name corev1.ResourceName) Slicing {
	product := node.Labels[ProductLabel]
	sharing := node.Labels[sharingLabel]
	switch {
	case name == shared, strings.HasSuffix(string(name), sharedSuffix), strings.HasSuffix(product, "-SHARED"),
		node.Labels[gkeSharing] != "", name == Whole && sharing != "" && sharing != "none":
		return Shared
	case strings.HasPrefix(string(name), migPrefix), strings.Contains(product, "-MIG-"), node.Labels[gkePartition] != "":
		return MIG
	}
	return WholeGPUs
}
