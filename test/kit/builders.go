// SPDX-License-Identifier: Apache-2.0

// Package kit is what tests of every kind share: builders in the words of the field, a scheme, and clients of clusters
// that are not there. It imports nothing of this repository, so that every test can import it.
package kit

import (
	"cmp"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// Labels that NVIDIA's GPU Feature Discovery puts on nodes, and their values on the nodes of the local cluster.
const (
	ProductLabel = "nvidia.com/gpu.product"
	FamilyLabel  = "nvidia.com/gpu.family"
	H100         = "NVIDIA-H100-80GB-HBM3"
	A100         = "NVIDIA-A100-SXM4-80GB"
	GPU          = corev1.ResourceName("nvidia.com/gpu")
)

// Names of Kueue's labels that TrainJobs carry.
const (
	QueueLabel    = "kueue.x-k8s.io/queue-name"
	PriorityLabel = "kueue.x-k8s.io/priority-class"
)

// TerminateAfter is the annotation of pods that says how long the fake kubelet of a local cluster has them take to end.
const TerminateAfter = "localcluster/terminate-after"

// With changes an object, and returns it. A change that is nil is none.
func With[T any](obj *T, changes ...func(*T)) *T {
	for _, change := range changes {
		if change != nil {
			change(obj)
		}
	}
	return obj
}

// TrainJobBuilder builds a TrainJob.
type TrainJobBuilder struct{ trainer.TrainJob }

// TrainJob starts with a job of one node on runtime torch-distributed.
func TrainJob(namespace, name string) *TrainJobBuilder {
	return &TrainJobBuilder{trainer.TrainJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{}},
		Spec:       trainer.TrainJobSpec{RuntimeRef: trainer.RuntimeRef{Name: "torch-distributed"}},
	}}
}

// Obj returns the TrainJob.
func (t *TrainJobBuilder) Obj() *trainer.TrainJob { return t.DeepCopy() }

// Queue puts the job into a LocalQueue.
func (t *TrainJobBuilder) Queue(name string) *TrainJobBuilder {
	t.Labels[QueueLabel] = name
	return t
}

// Priority returns the job a WorkloadPriorityClass.
func (t *TrainJobBuilder) Priority(class string) *TrainJobBuilder {
	t.Labels[PriorityLabel] = class
	return t
}

// Runtime names a ClusterTrainingRuntime.
func (t *TrainJobBuilder) Runtime(name string) *TrainJobBuilder {
	t.Spec.RuntimeRef.Name = name
	return t
}

// Nodes sets spec.trainer.numNodes.
func (t *TrainJobBuilder) Nodes(n int32) *TrainJobBuilder {
	t.trainerSpec().NumNodes = new(n)
	return t
}

// Request sets an amount per node, as request and limit.
func (t *TrainJobBuilder) Request(name corev1.ResourceName, amount string) *TrainJobBuilder {
	spec := t.trainerSpec()
	if spec.ResourcesPerNode == nil {
		spec.ResourcesPerNode = &corev1.ResourceRequirements{Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{}}
	}
	spec.ResourcesPerNode.Requests[name] = resource.MustParse(amount)
	spec.ResourcesPerNode.Limits[name] = resource.MustParse(amount)
	return t
}

// GPUResources are whole GPUs of a container.
func GPUResources(amount string) corev1.ResourceRequirements {
	gpus := Amounts(string(GPU), amount)
	return corev1.ResourceRequirements{Requests: gpus, Limits: gpus}
}

// GPUs sets the whole GPUs per node.
func (t *TrainJobBuilder) GPUs(amount string) *TrainJobBuilder { return t.Request(GPU, amount) }

func (t *TrainJobBuilder) trainerSpec() *trainer.Trainer {
	if t.Spec.Trainer == nil {
		t.Spec.Trainer = &trainer.Trainer{}
	}
	return t.Spec.Trainer
}

// Initializers returns the job a dataset and a model to download.
func (t *TrainJobBuilder) Initializers() *TrainJobBuilder {
	t.Spec.Initializer = &trainer.Initializer{
		Dataset: &trainer.DatasetInitializer{StorageUri: new("hf://tatsu-lab/alpaca")},
		Model:   &trainer.ModelInitializer{StorageUri: new("hf://Qwen/Qwen2.5-1.5B-Instruct")},
	}
	return t
}

// NodeSelector adds a user's patch that picks nodes for the one job of torch-distributed.
func (t *TrainJobBuilder) NodeSelector(labels map[string]string) *TrainJobBuilder {
	return t.PodPatch("example.com/user", "node", trainer.PodTemplatePatch{Spec: &trainer.PodSpecPatch{NodeSelector: labels}})
}

// PodAnnotations adds one patch entry that annotates the pods of a replicated job.
func (t *TrainJobBuilder) PodAnnotations(manager, key, value, replicatedJob string) *TrainJobBuilder {
	return t.PodPatch(manager, replicatedJob, trainer.PodTemplatePatch{Metadata: &metav1.ObjectMeta{Annotations: map[string]string{key: value}}})
}

// EndsAfter has the pods of the one job of torch-distributed take that long to end when they are deleted.
func (t *TrainJobBuilder) EndsAfter(delay string) *TrainJobBuilder {
	return t.PodAnnotations("example.com/user", TerminateAfter, delay, "node")
}

// PodPatch adds a user's patch of the pods of one replicated job.
func (t *TrainJobBuilder) PodPatch(manager, replicatedJob string, patch trainer.PodTemplatePatch) *TrainJobBuilder {
	spec := &trainer.JobSetSpecPatch{ReplicatedJobs: []trainer.ReplicatedJobPatch{{
		Name: replicatedJob, Template: &trainer.JobTemplatePatch{Spec: &trainer.JobSpecPatch{Template: patch.DeepCopy()}},
	}}}
	t.Spec.RuntimePatches = append(t.Spec.RuntimePatches, trainer.RuntimePatch{
		Manager: manager, TrainingRuntimeSpec: &trainer.TrainingRuntimeSpecPatch{Template: &trainer.JobSetTemplatePatch{Spec: spec}},
	})
	return t
}

// Tolerate adds a user's patch that lets the pods of the one job of torch-distributed onto tainted nodes.
func (t *TrainJobBuilder) Tolerate(tolerations ...corev1.Toleration) *TrainJobBuilder {
	return t.PodPatch("example.com/user", "node", trainer.PodTemplatePatch{Spec: &trainer.PodSpecPatch{Tolerations: tolerations}})
}

// GPUTaint is the taint of the local cluster's GPU nodes.
func GPUTaint() corev1.Taint {
	return corev1.Taint{Key: string(GPU), Value: "present", Effect: corev1.TaintEffectNoSchedule}
}

// GPUToleration tolerates it, as flavors have to where Kueue's in-tree integration places the pods.
func GPUToleration() corev1.Toleration {
	return corev1.Toleration{Key: string(GPU), Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
}

// Namespace builds a namespace.
func Namespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// Flavor builds a ResourceFlavor whose nodes carry the GPU taint.
func Flavor(name string, nodeLabels map[string]string, tolerations ...corev1.Toleration) *kueue.ResourceFlavor {
	return &kueue.ResourceFlavor{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       kueue.ResourceFlavorSpec{NodeLabels: nodeLabels, NodeTaints: []corev1.Taint{GPUTaint()}, Tolerations: tolerations},
	}
}

// Quota is an amount of one flavor, in GPUs, or of another resource, if that is named.
type Quota struct {
	Flavor, GPUs string
	Of           corev1.ResourceName
	Amount       string
}

func (q Quota) resource() kueue.ResourceQuota {
	return kueue.ResourceQuota{Name: cmp.Or(q.Of, GPU), NominalQuota: resource.MustParse(cmp.Or(q.Amount, q.GPUs))}
}

// ClusterQueue builds a ClusterQueue that any namespace may use, which preempts within itself by priority, and which
// takes the first of its flavors that a job can have, be it by preemption. All its quotas are of one resource.
func ClusterQueue(name string, quotas ...Quota) *kueue.ClusterQueue {
	group := kueue.ResourceGroup{CoveredResources: []corev1.ResourceName{GPU}}
	for _, q := range quotas {
		amount := q.resource()
		group.CoveredResources = []corev1.ResourceName{amount.Name}
		group.Flavors = append(group.Flavors, kueue.FlavorQuotas{
			Name: kueue.ResourceFlavorReference(q.Flavor), Resources: []kueue.ResourceQuota{amount},
		})
	}
	return &kueue.ClusterQueue{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: kueue.ClusterQueueSpec{
			NamespaceSelector: &metav1.LabelSelector{},
			Preemption:        &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyLowerPriority},
			FlavorFungibility: &kueue.FlavorFungibility{WhenCanPreempt: kueue.MayStopSearch},
			ResourceGroups:    []kueue.ResourceGroup{group},
		},
	}
}

// Queue builds what a team needs that has one pool: a flavor, a ClusterQueue with a quota of it, and the LocalQueue
// that leads there. Behind admission checks, which find the places in place of its flavor, that names no nodes.
func Queue(local *kueue.LocalQueue, flavor *kueue.ResourceFlavor, quota Quota, checks ...string) []client.Object {
	quota.Flavor = flavor.Name
	queue := ClusterQueue(string(local.Spec.ClusterQueue), quota)
	if len(checks) > 0 {
		flavor.Spec = kueue.ResourceFlavorSpec{}
	}
	queue.Spec.AdmissionChecksStrategy = Checks(checks...)
	return []client.Object{flavor, queue, local}
}

// Checks puts a ClusterQueue behind admission checks.
func Checks(names ...string) *kueue.AdmissionChecksStrategy {
	if len(names) == 0 {
		return nil
	}
	strategy := &kueue.AdmissionChecksStrategy{}
	for _, name := range names {
		strategy.AdmissionChecks = append(strategy.AdmissionChecks, kueue.AdmissionCheckStrategyRule{Name: kueue.AdmissionCheckReference(name)})
	}
	return strategy
}

// LocalQueue builds a LocalQueue.
func LocalQueue(namespace, name, clusterQueue string) *kueue.LocalQueue {
	return &kueue.LocalQueue{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(clusterQueue)},
	}
}

// RoleBinding builds what gives a user a ClusterRole in a namespace, or the "Role/NAME" of that.
func RoleBinding(namespace, role, user string) *rbacv1.RoleBinding {
	kind := "ClusterRole"
	if name, own := strings.CutPrefix(role, "Role/"); own {
		kind, role = "Role", name
	}
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: role},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: role},
		Subjects:   []rbacv1.Subject{User(user)},
	}
}

// ClusterRoleBinding builds what gives somebody a ClusterRole in the whole cluster.
func ClusterRoleBinding(name, role string, whom rbacv1.Subject) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{whom},
	}
}

// User names a user to a binding.
func User(name string) rbacv1.Subject {
	return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}
}

// Account names a ServiceAccount to a binding.
func Account(namespace, name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
}

// Priority builds a WorkloadPriorityClass.
func Priority(name string, value int32) *kueue.WorkloadPriorityClass {
	return &kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value}
}

// Claim builds a claim of a small volume.
func Claim(namespace, name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
}
