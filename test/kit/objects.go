// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"fmt"
	"maps"
	"strings"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
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

// Workload builds one that waits in a queue since a time, with its name as its UID.
func Workload(namespace, name, queue string, since time.Time, podSets ...kueue.PodSet) *kueue.Workload {
	return &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(since)},
		Spec:       kueue.WorkloadSpec{QueueName: kueue.LocalQueueName(queue), Priority: new(int32(0)), PodSets: podSets},
	}
}

// What Kueue, MultiKueue and people do with a Workload.

// Runs has it admitted at a time, with quota of a flavor.
func Runs(clusterQueue, flavor string, since time.Time) func(*kueue.Workload) {
	return All(Admitted, Assigned(clusterQueue, flavor), Since(since))
}

// Admitted reserves quota for a Workload, and admits it.
func Admitted(wl *kueue.Workload) {
	Is(kueue.WorkloadQuotaReserved, "")(wl)
	Is(kueue.WorkloadAdmitted, "")(wl)
	wl.Status.Admission = &kueue.Admission{}
}

// Assigned has a ClusterQueue give it quota of a flavor, for all that its pods ask for.
func Assigned(clusterQueue, flavor string) func(*kueue.Workload) {
	return func(wl *kueue.Workload) {
		wl.Status.Admission = &kueue.Admission{ClusterQueue: kueue.ClusterQueueReference(clusterQueue)}
		for _, ps := range wl.Spec.PodSets {
			assigned := kueue.PodSetAssignment{
				Name: ps.Name, Count: &ps.Count, Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{}, ResourceUsage: corev1.ResourceList{},
			}
			for name, amount := range ps.Template.Spec.Containers[0].Resources.Requests {
				amount.Mul(int64(ps.Count))
				assigned.Flavors[name], assigned.ResourceUsage[name] = kueue.ResourceFlavorReference(flavor), amount
			}
			wl.Status.Admission.PodSetAssignments = append(wl.Status.Admission.PodSetAssignments, assigned)
		}
	}
}

// Deactivated has it not run.
func Deactivated(wl *kueue.Workload) { wl.Spec.Active = new(false) }

// Copied makes it one that MultiKueue made in a worker.
func Copied(wl *kueue.Workload) {
	wl.Labels = map[string]string{kueue.MultiKueueOriginLabel: "manager"}
}

// Held has Kueue's finalizer keep it until its quota is given back.
func Held(wl *kueue.Workload) { wl.Finalizers = []string{kueue.ResourceInUseFinalizerName} }

// Is makes a condition true.
func Is(condition, reason string) func(*kueue.Workload) { return Says(True(condition, reason)) }

// Isnt makes a condition false.
func Isnt(condition, reason string) func(*kueue.Workload) {
	isnt := True(condition, reason)
	isnt.Status = metav1.ConditionFalse
	return Says(isnt)
}

// Says sets a condition.
func Says(condition metav1.Condition) func(*kueue.Workload) {
	return func(wl *kueue.Workload) {
		apimeta.RemoveStatusCondition(&wl.Status.Conditions, condition.Type)
		wl.Status.Conditions = append(wl.Status.Conditions, condition)
	}
}

// Since has it have said since a time what it says by now.
func Since(at time.Time) func(*kueue.Workload) {
	return func(wl *kueue.Workload) {
		for i := range wl.Status.Conditions {
			wl.Status.Conditions[i].LastTransitionTime = metav1.NewTime(at)
		}
	}
}

// All are several changes as one.
func All[T any](changes ...func(*T)) func(*T) { return func(obj *T) { With(obj, changes...) } }

// True is a condition that has held for long.
func True(condition, reason string) metav1.Condition {
	return metav1.Condition{Type: condition, Status: metav1.ConditionTrue, Reason: reason, LastTransitionTime: metav1.Unix(1, 0)}
}

// ChildJob builds a Job that a JobSet made of one of its replicated jobs.
func ChildJob(js *jobsetapi.JobSet, replicatedJob string, changes ...func(*batchv1.Job)) *batchv1.Job {
	return With(&batchv1.Job{ObjectMeta: metav1.ObjectMeta{
		Namespace: js.Namespace, Name: js.Name + "-" + replicatedJob + "-0",
		Labels:          map[string]string{jobsetapi.JobSetNameKey: js.Name, jobsetapi.ReplicatedJobNameKey: replicatedJob},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(js, jobsetapi.SchemeGroupVersion.WithKind("JobSet"))},
	}}, changes...)
}

// Active sets how many pods of a Job run.
func Active(pods int32) func(*batchv1.Job) {
	return func(child *batchv1.Job) { child.Status.Active = pods }
}

// Succeeded has pods of a Job be done.
func Succeeded(pods int32) func(*batchv1.Job) {
	return func(child *batchv1.Job) { child.Status.Succeeded = pods }
}

// Completed has a Job be done.
func Completed(child *batchv1.Job) {
	child.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
}

// ReplicatedJobs are the parts of a JobSet with one replicated job of so many Jobs.
func ReplicatedJobs(name string, replicas int32) []jobsetapi.ReplicatedJob {
	return []jobsetapi.ReplicatedJob{{Name: name, Replicas: replicas}}
}
