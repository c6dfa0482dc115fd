// SPDX-License-Identifier: Apache-2.0

package podset

import (
	"fmt"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/kubeflow/trainer/v2/pkg/constants"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/kueue-trainer/kueue-trainer/pkg/quantity"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

var (
	trainerPath   = field.NewPath("spec", "trainer")
	resourcesPath = trainerPath.Child("resourcesPerNode")
)

// blame tells where people can change what is wrong with the pods of a TrainJob: in the
// TrainJob, or in the runtime, which may be somebody else's.
type blame struct {
	job     *trainjob.TrainJob
	runtime *trainer.TrainingRuntimeSpec
}

// refuse names the runtime.
func (b *blame) refuse(why string) *field.Error {
	ref := b.job.Spec.RuntimeRef
	kind := ptr.Deref(ref.Kind, trainer.ClusterTrainingRuntimeKind)
	return field.Invalid(runtimeRefPath, ref.Name, fmt.Sprintf("%s; change %s %s, or use another runtime", why, kind, ref.Name))
}

// refuseAmount names where the amount of a container comes from: no patch has resources.
func (b *blame) refuseAmount(rj *jobsetapi.ReplicatedJob, container string, w quantity.Wrong) *field.Error {
	if b.asked(rj, container, w) {
		return field.Invalid(resourcesPath.Child(w.List).Key(string(w.Name)), w.Quantity.String(), w.Why)
	}
	return b.refuse(fmt.Sprintf("in replicated job %s, container %s, resources.%s[%s] is %s: %s", rj.Name, container, w.List, w.Name, w.Quantity.String(), w.Why))
}

// asked reports whether the TrainJob itself asks for the resource of a container.
func (b *blame) asked(rj *jobsetapi.ReplicatedJob, container string, w quantity.Wrong) bool {
	if b.job.Spec.Trainer == nil || b.job.Spec.Trainer.ResourcesPerNode == nil || container != constants.Node || !trainjob.RunsNodes(b.runtime.MLPolicy, rj) {
		return false
	}
	_, limited := b.job.Spec.Trainer.ResourcesPerNode.Limits[w.Name]
	_, requested := b.job.Spec.Trainer.ResourcesPerNode.Requests[w.Name]
	return limited || requested
}
