// SPDX-License-Identifier: Apache-2.0

// Package nodes makes the fake nodes: GPU pools with the labels that NVIDIA's GPU Feature Discovery puts on real ones,
// and two nodes without GPUs. It says what their fake kubelet and the fake volume provisioner do, as kwok Stages.
// docs/dev/local-cluster.md has the annotations of pods that they obey.
package nodes

import (
	_ "embed"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// KwokConfiguration is kwok's options and all Stages in one stream, as its --config takes them.
//
//go:embed kwok.yaml
var KwokConfiguration []byte

// ManagedAnnotation and ManagedValue mark a node whose kubelet kwok plays.
const (
	ManagedAnnotation = "kwok.x-k8s.io/node"
	ManagedValue      = "fake"
)

const (
	gpuResource = corev1.ResourceName("nvidia.com/gpu")
	gpusPerNode = "8"
)

type pool struct {
	name      string
	labels    map[string]string
	resources corev1.ResourceList
	taints    []corev1.Taint
}

var (
	h100 = gpuPool("gpu-h100", "NVIDIA-H100-80GB-HBM3", "81559", "hopper")
	a100 = gpuPool("gpu-a100", "NVIDIA-A100-SXM4-80GB", "81920", "ampere")
	cpus = pool{name: "cpu", resources: resources("64", "256Gi")}
)

// Make returns gpuNodes GPU nodes, half of them H100 (the larger half, if odd) and half A100, and two CPU nodes.
func Make(gpuNodes int) []*corev1.Node {
	h100Nodes := (gpuNodes + 1) / 2
	return slices.Concat(h100.make(h100Nodes), a100.make(gpuNodes-h100Nodes), cpus.make(2))
}

func gpuPool(name, product, memoryMiB, family string) pool {
	withGPUs := resources("96", "1Ti")
	withGPUs[gpuResource] = resource.MustParse(gpusPerNode)
	return pool{name: name, resources: withGPUs,
		labels: map[string]string{
			"nvidia.com/gpu.product": product, "nvidia.com/gpu.count": gpusPerNode, "nvidia.com/gpu.memory": memoryMiB, "nvidia.com/gpu.family": family,
		},
		taints: []corev1.Taint{{Key: string(gpuResource), Value: "present", Effect: corev1.TaintEffectNoSchedule}},
	}
}

func resources(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory),
		corev1.ResourceEphemeralStorage: resource.MustParse("1Ti"), corev1.ResourcePods: resource.MustParse("110"),
	}
}

func (p pool) make(count int) (nodes []*corev1.Node) {
	for i := range count {
		name := fmt.Sprintf("%s-%d", p.name, i)
		labels := map[string]string{corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64"}
		maps.Copy(labels, p.labels)
		nodes = append(nodes, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Annotations: map[string]string{ManagedAnnotation: ManagedValue}},
			Spec:       corev1.NodeSpec{Taints: p.taints},
			Status:     corev1.NodeStatus{Capacity: p.resources, Allocatable: p.resources},
		})
	}
	return nodes
}

// KubeletTaint keeps pods from the node of Kubelet for which there is no image. A flavor has to tolerate it.
const KubeletTaint = "kueue-trainer.test/kubelet"

// Kubelet dresses a node with a real kubelet up as one with GPUs, of a product of its own.
// A kubelet keeps what others say of resources that it does not know.
func Kubelet(node *corev1.Node) {
	p := gpuPool("kubelet", "FAKE-KUBELET", "81559", "hopper")
	maps.Copy(node.Labels, p.labels)
	for _, taint := range append(p.taints, corev1.Taint{Key: KubeletTaint, Value: "real", Effect: corev1.TaintEffectNoSchedule}) {
		node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == taint.Key })
		node.Spec.Taints = append(node.Spec.Taints, taint)
	}
	node.Status.Capacity[gpuResource] = p.resources[gpuResource]
	node.Status.Allocatable[gpuResource] = p.resources[gpuResource]
}

// Usable tells whether pods can be placed on the node: it is ready, and the node controller has taken its own taint away.
func Usable(node *corev1.Node) bool {
	return !slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable
	}) && slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}
