// SPDX-License-Identifier: Apache-2.0

package podset

import (
	"fmt"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

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
	for i := range js.Spec.ReplicatedJobs {
		rj := &js.Spec.ReplicatedJobs[i]
		job := fmt.Sprintf("-%s-%d", rj.Name, rj.Replicas-1)
		names = append(names, derived{kind: "Jobs", suffix: job})
		spec := &rj.Template.Spec
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
