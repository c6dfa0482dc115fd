// SPDX-License-Identifier: Apache-2.0

package options

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The parts of a RuntimePatch. As in the SDK, parts that are not set or in which nothing
// is set are left out, and so are empty lists; objects in raw JSON stay as they are.
type (
	// TrainingRuntimeSpecPatch patches the spec of a runtime.
	TrainingRuntimeSpecPatch struct {
		Template *JobSetTemplatePatch `json:"template,omitzero"`
	}

	// JobSetTemplatePatch patches the JobSet.
	JobSetTemplatePatch struct {
		// Metadata has labels and annotations.
		Metadata map[string]any   `json:"metadata,omitzero"`
		Spec     *JobSetSpecPatch `json:"spec,omitzero"`
	}

	// JobSetSpecPatch patches replicated jobs, each by its name.
	JobSetSpecPatch struct {
		ReplicatedJobs []ReplicatedJobPatch `json:"replicatedJobs,omitempty"`
	}

	// ReplicatedJobPatch patches the replicated job of this name, such as node.
	ReplicatedJobPatch struct {
		Name     string            `json:"name"`
		Template *JobTemplatePatch `json:"template,omitzero"`
	}

	// JobTemplatePatch patches the Jobs of a replicated job.
	JobTemplatePatch struct {
		// Metadata has labels and annotations.
		Metadata map[string]any `json:"metadata,omitzero"`
		Spec     *JobSpecPatch  `json:"spec,omitzero"`
	}

	// JobSpecPatch patches the spec of a Job.
	JobSpecPatch struct {
		Template *PodTemplatePatch `json:"template,omitzero"`
	}

	// PodTemplatePatch patches the pods of a Job.
	PodTemplatePatch struct {
		// Metadata has labels and annotations.
		Metadata map[string]any `json:"metadata,omitzero"`
		Spec     *PodSpecPatch  `json:"spec,omitzero"`
	}

	// PodSpecPatch patches the spec of a pod. Objects are as in the Kubernetes API.
	PodSpecPatch struct {
		ServiceAccountName *string           `json:"serviceAccountName,omitempty"`
		Volumes            []map[string]any  `json:"volumes,omitempty"`
		InitContainers     []ContainerPatch  `json:"initContainers,omitempty"`
		Containers         []ContainerPatch  `json:"containers,omitempty"`
		ImagePullSecrets   []map[string]any  `json:"imagePullSecrets,omitempty"`
		SecurityContext    map[string]any    `json:"securityContext,omitzero"`
		NodeSelector       map[string]string `json:"nodeSelector,omitzero"`
		Affinity           map[string]any    `json:"affinity,omitzero"`
		Tolerations        []map[string]any  `json:"tolerations,omitempty"`
		SchedulingGates    []map[string]any  `json:"schedulingGates,omitempty"`
		// TerminationGracePeriodSeconds is of Trainer 2.3 and later.
		TerminationGracePeriodSeconds *int64 `json:"terminationGracePeriodSeconds,omitempty"`
	}

	// ContainerPatch patches the container of this name, which the runtime must have.
	ContainerPatch struct {
		Name string `json:"name"`
		// Env has variables with a name and a value or a valueFrom.
		Env []map[string]any `json:"env,omitempty"`
		// VolumeMounts have a name and a mountPath at the least.
		VolumeMounts    []map[string]any `json:"volumeMounts,omitempty"`
		SecurityContext map[string]any   `json:"securityContext,omitzero"`
	}
)

// IsZero leaves the part out of JSON when nothing is set in it.
func (p *TrainingRuntimeSpecPatch) IsZero() bool { return p == nil || empty(*p) }

// IsZero leaves the part out of JSON when nothing is set in it.
func (p *JobSetTemplatePatch) IsZero() bool { return p == nil || empty(*p) }

// IsZero leaves the part out of JSON when nothing is set in it.
func (p *JobSetSpecPatch) IsZero() bool { return p == nil || empty(*p) }

// IsZero leaves the part out of JSON when nothing is set in it.
func (p *JobTemplatePatch) IsZero() bool { return p == nil || empty(*p) }

// IsZero leaves the part out of JSON when nothing is set in it.
func (p *JobSpecPatch) IsZero() bool { return p == nil || empty(*p) }

// IsZero leaves the part out of JSON when nothing is set in it.
func (p *PodTemplatePatch) IsZero() bool { return p == nil || empty(*p) }

// IsZero leaves the part out of JSON when nothing is set in it.
func (p *PodSpecPatch) IsZero() bool { return p == nil || empty(*p) }

// empty reports whether a part has no JSON field. What cannot be encoded is not empty,
// so that the encoder meets it.
func empty(part any) bool {
	data, err := json.Marshal(part)
	return err == nil && string(data) == "{}"
}

// validate checks the containers, which is all that the SDK checks.
func (p *TrainingRuntimeSpecPatch) validate() field.ErrorList {
	if p == nil || p.Template == nil || p.Template.Spec == nil {
		return nil
	}
	var errs field.ErrorList
	jobs := field.NewPath("trainingRuntimeSpec", "template", "spec", "replicatedJobs")
	for i, job := range p.Template.Spec.ReplicatedJobs {
		if job.Template == nil || job.Template.Spec == nil || job.Template.Spec.Template == nil || job.Template.Spec.Template.Spec == nil {
			continue
		}
		pod, path := job.Template.Spec.Template.Spec, jobs.Index(i).Child("template", "spec", "template", "spec")
		for j, c := range pod.InitContainers {
			errs = append(errs, c.validate(path.Child("initContainers").Index(j))...)
		}
		for j, c := range pod.Containers {
			errs = append(errs, c.validate(path.Child("containers").Index(j))...)
		}
	}
	return errs
}
