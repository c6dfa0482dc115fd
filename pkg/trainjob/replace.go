// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/kubeflow/trainer/v2/pkg/constants"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

// asksForResources tells whether a TrainJob sets resources of its own.
func asksForResources(job *TrainJob) bool {
	perNode := ptr.Deref(ptr.Deref(job.Spec.Trainer, trainer.Trainer{}).ResourcesPerNode, corev1.ResourceRequirements{})
	return perNode.Limits != nil || perNode.Requests != nil
}

// replaceResources returns the runtime that renders, with the library of Trainer 2.3, as
// spec does with an older Trainer: there resourcesPerNode takes the place of the
// resources of the container, all of them (func Trainer in
// pkg/runtime/framework/plugins/jobset/builder.go of 2.1 and 2.2). The library merges
// them per key, and what is merged with itself stays.
func replaceResources(spec *trainer.TrainingRuntimeSpec, job *TrainJob) *trainer.TrainingRuntimeSpec {
	perNode := job.Spec.Trainer.ResourcesPerNode
	spec = spec.DeepCopy()
	patchSteps(spec, job)
	for i := range spec.Template.Spec.ReplicatedJobs {
		rj := &spec.Template.Spec.ReplicatedJobs[i]
		if !RunsNodes(spec.MLPolicy, rj) {
			continue
		}
		containers := rj.Template.Spec.Template.Spec.Containers
		for j := range containers {
			if containers[j].Name == constants.Node {
				containers[j].Resources = corev1.ResourceRequirements{Limits: perNode.Limits.DeepCopy(), Requests: perNode.Requests.DeepCopy()}
			}
		}
	}
	return spec
}

// patchSteps merges the ancestor labels of the job's patches into the runtime, as Trainer 2.2 does before it looks for the
// replicated job that resourcesPerNode is for (mergeRuntimePatches in pkg/runtime/core there).
func patchSteps(spec *trainer.TrainingRuntimeSpec, job *TrainJob) {
	for _, p := range job.Spec.RuntimePatches {
		entry, err := p.Decode()
		if err != nil || entry.TrainingRuntimeSpec == nil || entry.TrainingRuntimeSpec.Template == nil || entry.TrainingRuntimeSpec.Template.Spec == nil {
			continue // Rendering tells of the error.
		}
		for _, patched := range entry.TrainingRuntimeSpec.Template.Spec.ReplicatedJobs {
			labels := ptr.Deref(ptr.Deref(patched.Template, trainer.JobTemplatePatch{}).Metadata, metav1.ObjectMeta{}).Labels
			for i := range spec.Template.Spec.ReplicatedJobs {
				rj := &spec.Template.Spec.ReplicatedJobs[i]
				if step, ok := labels[constants.LabelTrainJobAncestor]; ok && rj.Name == patched.Name {
					metav1.SetMetaDataLabel(&rj.Template.ObjectMeta, constants.LabelTrainJobAncestor, step)
				}
			}
		}
	}
}

// RunsNodes reports whether a replicated job is one that resourcesPerNode is for: the
// trainer step, and the nodes of MPI when the launcher is one of them.
func RunsNodes(policy *trainer.MLPolicy, rj *jobsetapi.ReplicatedJob) bool {
	if rj.Template.Labels[constants.LabelTrainJobAncestor] == constants.AncestorTrainer {
		return true
	}
	return policy != nil && policy.MPI != nil && ptr.Deref(policy.MPI.RunLauncherAsNode, false) && rj.Name == constants.Node
}
