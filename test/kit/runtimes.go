// SPDX-License-Identifier: Apache-2.0

package kit

import (
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

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
