// SPDX-License-Identifier: Apache-2.0

package kit

import (
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// Labels that NVIDIA's GPU Feature Discovery puts on nodes, and their values on the
// nodes of the local cluster.
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

// TrainJob builds a TrainJob.
type TrainJob struct{ trainer.TrainJob }

// MakeTrainJob starts with a job of one node on runtime torch-distributed.
func MakeTrainJob(namespace, name string) *TrainJob {
	return &TrainJob{trainer.TrainJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{}},
		Spec:       trainer.TrainJobSpec{RuntimeRef: trainer.RuntimeRef{Name: "torch-distributed"}},
	}}
}

// Obj returns the TrainJob.
func (t *TrainJob) Obj() *trainer.TrainJob { return t.DeepCopy() }

// Queue puts the job into a LocalQueue.
func (t *TrainJob) Queue(name string) *TrainJob {
	t.Labels[QueueLabel] = name
	return t
}

// Priority returns the job a WorkloadPriorityClass.
func (t *TrainJob) Priority(class string) *TrainJob {
	t.Labels[PriorityLabel] = class
	return t
}

// Runtime names a ClusterTrainingRuntime.
func (t *TrainJob) Runtime(name string) *TrainJob {
	t.Spec.RuntimeRef.Name = name
	return t
}

// Nodes sets spec.trainer.numNodes.
func (t *TrainJob) Nodes(n int32) *TrainJob {
	t.trainerSpec().NumNodes = ptr.To(n)
	return t
}

// Request sets an amount per node, as request and limit.
func (t *TrainJob) Request(name corev1.ResourceName, amount string) *TrainJob {
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
	gpus := corev1.ResourceList{GPU: resource.MustParse(amount)}
	return corev1.ResourceRequirements{Requests: gpus, Limits: gpus}
}

// GPUs sets the whole GPUs per node.
func (t *TrainJob) GPUs(amount string) *TrainJob { return t.Request(GPU, amount) }

func (t *TrainJob) trainerSpec() *trainer.Trainer {
	if t.Spec.Trainer == nil {
		t.Spec.Trainer = &trainer.Trainer{}
	}
	return t.Spec.Trainer
}

// Initializers returns the job a dataset and a model to download.
func (t *TrainJob) Initializers() *TrainJob {
	t.Spec.Initializer = &trainer.Initializer{
		Dataset: &trainer.DatasetInitializer{StorageUri: ptr.To("hf://tatsu-lab/alpaca")},
		Model:   &trainer.ModelInitializer{StorageUri: ptr.To("hf://Qwen/Qwen2.5-1.5B-Instruct")},
	}
	return t
}

// PodPatch adds a user's patch of the pods of one replicated job.
func (t *TrainJob) PodPatch(manager, replicatedJob string, patch trainer.PodTemplatePatch) *TrainJob {
	t.Spec.RuntimePatches = append(t.Spec.RuntimePatches, trainer.RuntimePatch{
		Manager: manager,
		TrainingRuntimeSpec: &trainer.TrainingRuntimeSpecPatch{Template: &trainer.JobSetTemplatePatch{
			Spec: &trainer.JobSetSpecPatch{ReplicatedJobs: []trainer.ReplicatedJobPatch{{
				Name:     replicatedJob,
				Template: &trainer.JobTemplatePatch{Spec: &trainer.JobSpecPatch{Template: &patch}},
			}}},
		}},
	})
	return t
}

// PodAnnotation adds an annotation to the pods of one replicated job.
func (t *TrainJob) PodAnnotation(manager, replicatedJob, key, value string) *TrainJob {
	return t.PodPatch(manager, replicatedJob, trainer.PodTemplatePatch{
		Metadata: &metav1.ObjectMeta{Annotations: map[string]string{key: value}},
	})
}

// PodAnnotations adds one patch entry that annotates the pods of several replicated jobs.
func (t *TrainJob) PodAnnotations(manager, key, value string, replicatedJobs ...string) *TrainJob {
	patches := make([]trainer.ReplicatedJobPatch, 0, len(replicatedJobs))
	for _, name := range replicatedJobs {
		patches = append(patches, trainer.ReplicatedJobPatch{
			Name: name,
			Template: &trainer.JobTemplatePatch{Spec: &trainer.JobSpecPatch{Template: &trainer.PodTemplatePatch{
				Metadata: &metav1.ObjectMeta{Annotations: map[string]string{key: value}},
			}}},
		})
	}
	t.Spec.RuntimePatches = append(t.Spec.RuntimePatches, trainer.RuntimePatch{
		Manager: manager,
		TrainingRuntimeSpec: &trainer.TrainingRuntimeSpecPatch{Template: &trainer.JobSetTemplatePatch{
			Spec: &trainer.JobSetSpecPatch{ReplicatedJobs: patches},
		}},
	})
	return t
}

// Tolerate adds a user's patch that lets the pods of the one job of torch-distributed
// onto nodes with any of the tolerated taints.
func (t *TrainJob) Tolerate(tolerations ...corev1.Toleration) *TrainJob {
	return t.PodPatch("example.com/user", "node", trainer.PodTemplatePatch{Spec: &trainer.PodSpecPatch{Tolerations: tolerations}})
}

// GPUTaint is the taint of the local cluster's GPU nodes.
func GPUTaint() corev1.Taint {
	return corev1.Taint{Key: string(GPU), Value: "present", Effect: corev1.TaintEffectNoSchedule}
}

// MakeFlavor builds a ResourceFlavor whose nodes carry the GPU taint.
func MakeFlavor(name string, nodeLabels map[string]string, tolerations ...corev1.Toleration) *kueue.ResourceFlavor {
	return &kueue.ResourceFlavor{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       kueue.ResourceFlavorSpec{NodeLabels: nodeLabels, NodeTaints: []corev1.Taint{GPUTaint()}, Tolerations: tolerations},
	}
}

// Quota is an amount of GPUs of one flavor.
type Quota struct{ Flavor, GPUs string }

// MakeClusterQueue builds a ClusterQueue that any namespace may use, which preempts
// within itself by priority, and which takes the first of its flavors that a job can
// have, be it by preemption.
func MakeClusterQueue(name string, quotas ...Quota) *kueue.ClusterQueue {
	flavors := make([]kueue.FlavorQuotas, 0, len(quotas))
	for _, q := range quotas {
		flavors = append(flavors, kueue.FlavorQuotas{
			Name:      kueue.ResourceFlavorReference(q.Flavor),
			Resources: []kueue.ResourceQuota{{Name: GPU, NominalQuota: resource.MustParse(q.GPUs)}},
		})
	}
	return &kueue.ClusterQueue{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: kueue.ClusterQueueSpec{
			NamespaceSelector: &metav1.LabelSelector{},
			Preemption:        &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyLowerPriority},
			FlavorFungibility: &kueue.FlavorFungibility{WhenCanPreempt: kueue.MayStopSearch},
			ResourceGroups: []kueue.ResourceGroup{{
				CoveredResources: []corev1.ResourceName{GPU}, Flavors: flavors,
			}},
		},
	}
}

// Behind puts a ClusterQueue behind admission checks, if there are any, which find the places in
// place of its flavor: that names no nodes then.
func Behind(queue *kueue.ClusterQueue, flavor *kueue.ResourceFlavor, checks ...string) {
	if len(checks) == 0 {
		return
	}
	flavor.Spec = kueue.ResourceFlavorSpec{}
	queue.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{}
	for _, name := range checks {
		queue.Spec.AdmissionChecksStrategy.AdmissionChecks = append(queue.Spec.AdmissionChecksStrategy.AdmissionChecks,
			kueue.AdmissionCheckStrategyRule{Name: kueue.AdmissionCheckReference(name)})
	}
}

// MakeLocalQueue builds a LocalQueue.
func MakeLocalQueue(namespace, name, clusterQueue string) *kueue.LocalQueue {
	return &kueue.LocalQueue{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(clusterQueue)},
	}
}

// MakePriority builds a WorkloadPriorityClass.
func MakePriority(name string, value int32) *kueue.WorkloadPriorityClass {
	return &kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value}
}
