// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

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
