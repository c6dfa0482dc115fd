// SPDX-License-Identifier: Apache-2.0

package kit

import (
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
		fields[field] = apiextensionsv1.JSONSchemaProps{Type: "array"}
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
