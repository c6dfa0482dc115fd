// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Entry is one element of spec.runtimePatches in the making.
type Entry struct {
	Manager string `json:"manager"`
	Time    string `json:"time,omitempty"`
	Spec    Object `json:"trainingRuntimeSpec,omitempty"`
}

// At returns the object at a path below another, which is made where it is missing.
func At(object Object, path ...string) Object {
	for _, key := range path {
		next, ok := object[key].(Object)
		if !ok {
			next = Object{}
			object[key] = next
		}
		object = next
	}
	return object
}

// add merges a layer into the entry; it wins over what is there.
func (e *Entry) add(l Layer) (warnings []string, err *field.Error) {
	if warnings, err = e.stamp(l); err != nil {
		return nil, err
	}
	switch {
	case l.job == "" && len(l.Metadata) > 0:
		MergeMetadata(At(e.Spec, "template", "metadata"), l.Metadata)
	case l.job == "":
	case l.ofJob && len(l.Metadata) > 0:
		MergeMetadata(At(e.Job(l.job), "template", "metadata"), l.Metadata)
	case !l.ofJob && (len(l.Metadata) > 0 || l.podSpec != nil):
		warned, err := addToPod(At(e.Job(l.job), podTemplate...), l)
		return append(warnings, warned...), err
	default:
		e.Job(l.job)
	}
	return warnings, nil
}

func addToPod(pod Object, l Layer) (warnings []string, err *field.Error) {
	if len(l.Metadata) > 0 {
		MergeMetadata(At(pod, "metadata"), l.Metadata)
	}
	if len(l.podSpec) == 0 {
		return nil, nil
	}
	base := At(pod, "spec")
	for _, list := range ambiguousOrder(base, l.podSpec) {
		warnings = append(warnings, fmt.Sprintf(
			"%s: several overrides of replicated job %q patch %s; in the one patch made of them its order may differ from the one they gave", l.Path, l.job, list))
	}
	merged, mergeErr := mergePodSpecs(base, l.podSpec)
	if mergeErr != nil {
		return nil, field.Invalid(l.Path.Child("spec"), field.OmitValueType{}, "it is no patch of a pod spec: "+mergeErr.Error())
	}
	pod["spec"] = merged
	return warnings, nil
}

// stamp keeps the latest time of a manager's overrides.
func (e *Entry) stamp(l Layer) ([]string, *field.Error) {
	if l.time == "" {
		return nil, nil
	}
	now, err := time.Parse(time.RFC3339, l.time)
	if err != nil {
		return nil, field.Invalid(l.Path.Child("time"), l.time, "it must be a time like 2026-02-17T10:00:00Z")
	}
	if before, err := time.Parse(time.RFC3339, e.Time); err == nil && now.Before(before) {
		return []string{fmt.Sprintf("%s: it is older than the override before it; their places in the list decide, not their times", l.Path.Child("time"))}, nil
	}
	e.Time = l.time
	return nil, nil
}

// podTemplate leads from a replicated job to its pods, PodSpec to what these run.
var (
	podTemplate = []string{"template", "spec", "template"}
	PodSpec     = []string{"template", "spec", "template", "spec"}
)

// Jobs are the replicated jobs that the entry has a part for.
func (e *Entry) Jobs() []Object {
	list, _, _ := unstructured.NestedFieldNoCopy(e.Spec, "template", "spec", "replicatedJobs")
	return named(list)
}

// Job returns the part of a replicated job, which is made where it is missing.
func (e *Entry) Job(name string) Object {
	jobs := e.Jobs()
	if at := slices.IndexFunc(jobs, func(job Object) bool { return job["name"] == name }); at >= 0 {
		return jobs[at]
	}
	js, job := At(e.Spec, "template", "spec"), Object{"name": name}
	list, _ := js["replicatedJobs"].([]any)
	js["replicatedJobs"] = append(list, job)
	return job
}
