// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"maps"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// KwokAnnotation marks nodes whose kubelet kwok plays. Without it a node has no kubelet.
const KwokAnnotation = "kwok.x-k8s.io/node"

// Node builds a tainted node with 8 GPUs whose kubelet kwok plays.
func Node(name string, labels map[string]string) *corev1.Node {
	all := map[string]string{corev1.LabelHostname: name, corev1.LabelOSStable: "linux"}
	maps.Copy(all, labels)
	resources := Amounts("cpu", "96", "memory", "1Ti", "pods", "110", string(GPU), "8")
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: all, Annotations: map[string]string{KwokAnnotation: "fake"}},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{GPUTaint()}},
		Status:     corev1.NodeStatus{Capacity: resources, Allocatable: resources},
	}
}

// Topology builds a Topology with node labels as its levels, the widest first.
func Topology(name string, levels ...string) *kueue.Topology {
	topology := &kueue.Topology{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, label := range levels {
		topology.Spec.Levels = append(topology.Spec.Levels, kueue.TopologyLevel{NodeLabel: label})
	}
	return topology
}

// RuntimeChange changes a runtime.
type RuntimeChange = func(*trainer.TrainingRuntimeSpec)

// RuntimePod describes the pods of a runtime's first replicated job.
func RuntimePod(spec *trainer.TrainingRuntimeSpec) *corev1.PodSpec {
	return &spec.Template.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec
}

// OfNodes sets the runtime's own number of nodes.
func OfNodes(n int32) RuntimeChange {
	return func(spec *trainer.TrainingRuntimeSpec) { spec.MLPolicy.NumNodes = &n }
}

// OfImage sets the image of the first container.
func OfImage(image string) RuntimeChange {
	return func(spec *trainer.TrainingRuntimeSpec) { RuntimePod(spec).Containers[0].Image = image }
}

// OfOneTry has a job fail with its first pod.
func OfOneTry(spec *trainer.TrainingRuntimeSpec) {
	spec.Template.Spec.ReplicatedJobs[0].Template.Spec.BackoffLimit = ptr.To[int32](0)
}

// OfGracePeriod sets how many seconds pods have to end.
func OfGracePeriod(seconds int64) RuntimeChange {
	return func(spec *trainer.TrainingRuntimeSpec) { RuntimePod(spec).TerminationGracePeriodSeconds = &seconds }
}
