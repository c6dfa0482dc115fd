// SPDX-License-Identifier: Apache-2.0

package podset

import (
	"context"
	"errors"
	"fmt"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

var runtimeRefPath = field.NewPath("spec", "runtimeRef")

// Validate says why Kueue could not take a TrainJob that uses the runtime: it checks what
// the PodSets are made of, the runtime and the patches of others, whether the pods that
// come out can run, and their topology annotations.
func Validate(ctx context.Context, renderer *trainjob.Renderer, job *trainjob.TrainJob, runtime *trainer.TrainingRuntimeSpec, patches patch.Field) field.ErrorList {
	if jobs := len(runtime.Template.Spec.ReplicatedJobs); jobs > maxPodSets {
		return field.ErrorList{field.Invalid(runtimeRefPath, job.Spec.RuntimeRef.Name, fmt.Sprintf(
			"the runtime has %d replicated jobs and Kueue takes %d PodSets at the most; use a runtime with fewer, or no queue", jobs, maxPodSets))}
	}
	js, errs, err := effective(ctx, renderer, job, runtime, patches)
	if errors.Is(err, patch.ErrInvalidPatches) {
		return field.ErrorList{field.Invalid(patches.Path(), field.OmitValueType{}, err.Error())}
	}
	if err != nil {
		return field.ErrorList{Unrendered(job, err)}
	}
	if len(errs) > 0 {
		return errs
	}
	podSets, err := fromJobSet(js)
	// An annotation that cannot be read at all is named by its own check as well.
	if errs := validateTopology(js.Spec.ReplicatedJobs, podSets, patches.Path()); len(errs) > 0 || err == nil {
		return errs
	}
	return field.ErrorList{field.Invalid(patches.Path(), "pod annotations", err.Error()+topologyRemedy(patches.Path()))}
}

// Unrendered is about a TrainJob of which no JobSet could be rendered.
func Unrendered(job *trainjob.TrainJob, err error) *field.Error {
	if errors.Is(err, trainjob.ErrTooManyPods) && job.Spec.Trainer != nil && job.Spec.Trainer.NumNodes != nil {
		return field.Invalid(trainerPath.Child("numNodes"), *job.Spec.Trainer.NumNodes, err.Error())
	}
	return field.Invalid(runtimeRefPath, job.Spec.RuntimeRef.Name, err.Error())
}

// topologyRemedy is added to Kueue's own messages, which cannot know where the
// annotations of a TrainJob's pods come from.
func topologyRemedy(patches *field.Path) string {
	return fmt.Sprintf("; change the pod annotations of this replicated job in %s or in the runtime", patches)
}

// validateTopology checks the topology annotations of every replicated job by Kueue's
// rules. podSets may be shorter than jobs when they could not all be made. Users may have
// put them into the field patches.
func validateTopology(jobs []jobsetapi.ReplicatedJob, podSets []kueue.PodSet, patches *field.Path) field.ErrorList {
	if !kueuelib.TopologyAwareSchedulingEnabled() {
		return nil
	}
	var errs field.ErrorList
	annotations := map[kueue.PodSetReference]*field.Path{}
	for i := range jobs {
		path := field.NewPath("replicatedJobs").Key(jobs[i].Name)
		meta := &jobs[i].Template.Spec.Template.ObjectMeta
		annotations[kueue.NewPodSetReference(jobs[i].Name)] = path.Child("metadata", "annotations")
		errs = append(errs, jobframework.ValidateTASPodSetRequest(path, meta)...)
		if i < len(podSets) {
			errs = append(errs, jobframework.ValidateSliceSizeAnnotationUpperBound(path, meta, &podSets[i])...)
		}
	}
	if len(errs) == 0 && len(podSets) == len(jobs) {
		errs = jobframework.ValidatePodSetGroupingTopology(podSets, annotations)
	}
	for _, err := range errs {
		err.Detail += topologyRemedy(patches)
	}
	return errs
}
