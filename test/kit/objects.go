// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"fmt"
	"maps"
	"strings"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// Amounts are pairs of a resource and how much of it.
func Amounts(pairs ...string) corev1.ResourceList {
	amounts := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		amounts[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return amounts
}

// Numbered is a list of so many items in YAML, each with its number, without brackets.
func Numbered(count int, item string) string {
	items := make([]string, count)
	for i := range items {
		items[i] = fmt.Sprintf(item, i)
	}
	return strings.Join(items, ", ")
}

// ReadyNode builds a node without taints that pods can have those amounts of.
func ReadyNode(name string, labels map[string]string, allocatable ...string) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	node.Status.Allocatable = Amounts(allocatable...)
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return node
}

// PlainFlavor builds a ResourceFlavor of the nodes with one label, whose taints it does not name.
func PlainFlavor(name, label, value string) *kueue.ResourceFlavor {
	flavor := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: name}}
	flavor.Spec.NodeLabels = map[string]string{label: value}
	return flavor
}

// PodRequests is a pod of one container, named node, that asks for those amounts.
func PodRequests(amounts ...string) corev1.PodSpec {
	return corev1.PodSpec{Containers: []corev1.Container{{
		Name: "node", Resources: corev1.ResourceRequirements{Requests: Amounts(amounts...)},
	}}}
}

// PodSet builds a PodSet of such pods.
func PodSet(name string, count int32, amounts ...string) kueue.PodSet {
	return kueue.PodSet{Name: kueue.PodSetReference(name), Count: count, Template: corev1.PodTemplateSpec{Spec: PodRequests(amounts...)}}
}

// ConfigMap builds one with a text under a key.
func ConfigMap(namespace, name, key, text string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string]string{key: text}}
}

// CRD builds a CustomResourceDefinition that serves a version, with those fields of the spec.
func CRD(name, version string, specFields ...string) *apiextensionsv1.CustomResourceDefinition {
	fields := map[string]apiextensionsv1.JSONSchemaProps{}
	for _, field := range specFields {
		fields[field] = apiextensionsv1.JSONSchemaProps{Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}}}
	}
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name}}
	crd.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{{
		Name: version, Served: true,
		Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
			Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": {Properties: fields}},
		}},
	}}
	return crd
}

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
	spec.Template.Spec.ReplicatedJobs[0].Template.Spec.BackoffLimit = new(int32(0))
}

// OfGracePeriod sets how many seconds pods have to end.
func OfGracePeriod(seconds int64) RuntimeChange {
	return func(spec *trainer.TrainingRuntimeSpec) { RuntimePod(spec).TerminationGracePeriodSeconds = &seconds }
}

// KueuePod is a pod that runs Kueue since a time, with the ConfigMap of a name as its configuration.
func KueuePod(namespace, configMap string, started time.Time) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "kueue-controller-manager-0", CreationTimestamp: metav1.NewTime(started)},
		Spec: corev1.PodSpec{Containers: []corev1.Container{
			{Name: "manager", VolumeMounts: []corev1.VolumeMount{{Name: "config"}}}, {Name: "proxy"},
		}, Volumes: []corev1.Volume{{Name: "config", VolumeSource: corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: configMap}}}}}},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
			Name: "manager", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(started)}}}}},
	}
}
