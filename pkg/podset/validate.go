// SPDX-License-Identifier: Apache-2.0

package podset

import (
	"context"
	"errors"
	"fmt"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
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

var namePath = field.NewPath("metadata", "name")

// derived is the longest name that JobSet makes out of that of a JobSet for one kind of objects.
type derived struct {
	kind           string
	prefix, suffix string
}

// room returns how long the name of the JobSet may be.
func (d derived) room() int {
	return validation.DNS1035LabelMaxLength - len(d.prefix) - len(d.suffix)
}

// derivedNames are those of JobSet's webhook (pkg/webhooks/jobset_webhook.go there, the
// same from 0.10 to 0.12; claims since 0.11): of the last Job of every replicated job, of
// its last pod, to which the Job controller adds five characters, and of volume claims.
func derivedNames(js *jobsetapi.JobSet) []derived {
	var names []derived
	for _, rj := range js.Spec.ReplicatedJobs {
		job := fmt.Sprintf("-%s-%d", rj.Name, rj.Replicas-1)
		names = append(names, derived{kind: "Jobs", suffix: job})
		spec := rj.Template.Spec
		if spec.Completions != nil && ptr.Deref(spec.CompletionMode, batchv1.IndexedCompletion) == batchv1.IndexedCompletion {
			names = append(names, derived{kind: "pods", suffix: fmt.Sprintf("%s-%d-abcde", job, *spec.Completions-1)})
		}
	}
	for _, policy := range js.Spec.VolumeClaimPolicies {
		for i := range policy.Templates {
			names = append(names, derived{kind: "volume claims", prefix: policy.Templates[i].Name + "-"})
		}
	}
	return names
}

// validateName reports a name of a TrainJob, and so of its JobSet, that leaves no room for
// those that JobSet makes out of it: JobSet's webhook would refuse the JobSet for ever.
func validateName(name string, js *jobsetapi.JobSet, runtime *blame) field.ErrorList {
	tightest := derived{}
	for _, d := range derivedNames(js) {
		if why := d.impossible(); why != "" {
			return field.ErrorList{runtime.refuse("JobSet cannot name %s %sNAME%s: %s", d.kind, d.prefix, d.suffix, why)}
		}
		if d.room() < tightest.room() {
			tightest = d
		}
	}
	if len(name) <= tightest.room() {
		return nil
	}
	return field.ErrorList{field.Invalid(namePath, name, fmt.Sprintf(
		"JobSet makes %s with names as long as %sNAME%s, which may have %d characters: choose a name of at most %d characters",
		tightest.kind, tightest.prefix, tightest.suffix, validation.DNS1035LabelMaxLength, tightest.room()))}
}

// impossible returns why no name of a JobSet would do, or nothing.
func (d derived) impossible() string {
	if d.room() < 1 {
		return fmt.Sprintf("that leaves nothing of %d characters for NAME", validation.DNS1035LabelMaxLength)
	}
	if d.prefix != "" {
		return ""
	}
	return strings.Join(validation.IsDNS1035Label("a"+d.suffix), ", ")
}
