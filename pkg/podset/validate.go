// SPDX-License-Identifier: Apache-2.0

package podset

import (
	"context"
	"errors"
	"fmt"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

var runtimeRefPath = field.NewPath("spec", "runtimeRef")

// Validate says why Kueue could not take a TrainJob that uses the runtime: it checks what
// the PodSets are made of, the runtime and the patches of others, whether the pods that
// come out can run, and their topology annotations.
func Validate(ctx context.Context, renderer *trainjob.Renderer, job *trainjob.TrainJob, runtime *trainer.TrainingRuntimeSpec, patches patch.Field) field.ErrorList {
	var names []string
	for i := range runtime.Template.Spec.ReplicatedJobs {
		names = append(names, runtime.Template.Spec.ReplicatedJobs[i].Name)
	}
	if errs := patches.UnknownJobs(&job.Spec, names); len(errs) > 0 {
		return errs
	}
	others, err := patches.Others(&job.Spec)
	if err != nil {
		return field.ErrorList{field.Invalid(patches.Path(), field.OmitValueType{}, err.Error())}
	}
	if len(names) > maxPodSets {
		return field.ErrorList{field.Invalid(runtimeRefPath, job.Spec.RuntimeRef.Name, fmt.Sprintf(
			"the runtime has %d replicated jobs and Kueue takes %d PodSets at the most; use a runtime with fewer, or no queue", len(names), maxPodSets))}
	}
	js, err := renderer.Describe(ctx, job, runtime, others)
	if err != nil {
		return field.ErrorList{Unrendered(job, err)}
	}
	if errs := runnable(job, runtime, js, patches); len(errs) > 0 {
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
