// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"fmt"
	"math"
	"regexp"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch/rules"
)

var specPath = field.NewPath("spec")

// withDefaults sets what JobSet's webhook defaults and its rules look at.
func withDefaults(js *jobsetapi.JobSet) *jobsetapi.JobSet {
	js = js.DeepCopy()
	for i := range js.Spec.ReplicatedJobs {
		job := &js.Spec.ReplicatedJobs[i].Template.Spec
		if job.CompletionMode == nil {
			job.CompletionMode = ptr.To(batchv1.IndexedCompletion)
		}
		if job.Template.Spec.RestartPolicy == "" {
			job.Template.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
		}
	}
	if js.Spec.FailurePolicy != nil {
		for i := range js.Spec.FailurePolicy.Rules {
			if rule := &js.Spec.FailurePolicy.Rules[i]; rule.Name == "" {
				rule.Name = fmt.Sprintf("failurePolicyRule%d", i)
			}
		}
	}
	return js
}

// ofJobSet has the rules of JobSet 0.12 for a new JobSet, with its feature gates as they ship (ValidateCreate in its
// pkg/webhooks, which cannot be imported beside Kueue's feature gates). Those for names are of package podset.
func ofJobSet(js *jobsetapi.JobSet) []Refusal {
	names := sets.New[string]()
	var errs, waits field.ErrorList
	for i := range js.Spec.ReplicatedJobs {
		rj, path := &js.Spec.ReplicatedJobs[i], specPath.Child("replicatedJobs").Index(i)
		refused, waiting := dependencies(rj, path.Child("dependsOn"), names)
		errs, waits = append(errs, refused...), append(waits, waiting...)
		if rj.GroupName != "" {
			errs = append(errs, rules.Complaints(path.Child("groupName"), rj.GroupName, validation.IsDNS1035Label(rj.GroupName))...)
		}
		if pods := int64(rj.Replicas) * int64(ptr.Deref(rj.Template.Spec.Parallelism, 1)); pods > math.MaxInt32 {
			errs = append(errs, field.Invalid(path.Child("replicas"), rj.Replicas, fmt.Sprintf("replicas times parallelism must not be more than %d", math.MaxInt32)))
		}
		names.Insert(rj.Name)
	}
	if n := js.Spec.Network; n != nil && n.Subdomain != "" {
		errs = append(errs, rules.Complaints(specPath.Child("network", "subdomain"), n.Subdomain, validation.IsDNS1035Label(n.Subdomain))...)
	}
	success := ptr.Deref(js.Spec.SuccessPolicy, jobsetapi.SuccessPolicy{})
	errs = append(errs, targets(specPath.Child("successPolicy", "targetReplicatedJobs"), success.TargetReplicatedJobs, names)...)
	errs = slices.Concat(errs, failurePolicy(ptr.Deref(js.Spec.FailurePolicy, jobsetapi.FailurePolicy{}), names), coordinator(js), claims(js))
	var all []Refusal
	for i, err := range slices.Concat(errs, waits) {
		all = append(all, Refusal{Kind: "JobSet", Path: err.Field, Message: err.ErrorBody(), Waits: i >= len(errs)})
	}
	return all
}

// dependencies of a replicated job are refused unless they stand before it. Those on itself wait for ever, of all but the
// first: JobSet's webhook notes a name before it looks at what the job depends on.
func dependencies(rj *jobsetapi.ReplicatedJob, path *field.Path, before sets.Set[string]) (refused, waits field.ErrorList) {
	for i, dependency := range rj.DependsOn {
		at := path.Index(i).Child("name")
		switch {
		case dependency.Name == rj.Name && before.Len() > 0:
			waits = append(waits, field.Invalid(at, dependency.Name,
				"the replicated job depends on itself, and JobSet never makes its Jobs: remove it, or name one that stands before it"))
		case !before.Has(dependency.Name):
			refused = append(refused, field.Invalid(at, dependency.Name, "a replicated job depends on those that stand before it only"))
		}
	}
	return refused, waits
}

func targets(path *field.Path, wanted []string, names sets.Set[string]) field.ErrorList {
	var errs field.ErrorList
	for i, name := range wanted {
		if !names.Has(name) {
			errs = append(errs, field.NotSupported(path.Index(i), name, sets.List(names)))
		}
	}
	return errs
}

var (
	ruleName = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`)
	reasons  = []string{
		batchv1.JobReasonBackoffLimitExceeded, batchv1.JobReasonDeadlineExceeded, batchv1.JobReasonFailedIndexes,
		batchv1.JobReasonMaxFailedIndexesExceeded, batchv1.JobReasonPodFailurePolicy,
	}
)

func failurePolicy(policy jobsetapi.FailurePolicy, names sets.Set[string]) field.ErrorList {
	path, seen := specPath.Child("failurePolicy"), sets.New[string]()
	var errs field.ErrorList
	if policy.RestartStrategy == jobsetapi.InPlaceRestart {
		errs = append(errs, field.Forbidden(path.Child("restartStrategy"), "JobSet has InPlaceRestart behind a feature gate that is off: use another"))
	}
	for i, rule := range policy.Rules {
		at := path.Child("rules").Index(i)
		if len(rule.Name) > 128 || !ruleName.MatchString(rule.Name) {
			errs = append(errs, field.Invalid(at.Child("name"), rule.Name, "it must be of at most 128 letters, digits and _,: and begin with a letter"))
		}
		if seen.Has(rule.Name) {
			errs = append(errs, field.Duplicate(at.Child("name"), rule.Name))
		}
		seen.Insert(rule.Name)
		if rule.Action == jobsetapi.RestartJob || rule.Action == jobsetapi.RestartJobAndIgnoreMaxRestarts {
			errs = append(errs, field.Forbidden(at.Child("action"), fmt.Sprintf("JobSet has %s behind a feature gate that is off: use another", rule.Action)))
		}
		errs = append(errs, targets(at.Child("targetReplicatedJobs"), rule.TargetReplicatedJobs, names)...)
		for j, reason := range rule.OnJobFailureReasons {
			if !slices.Contains(reasons, reason) {
				errs = append(errs, field.NotSupported(at.Child("onJobFailureReasons").Index(j), reason, reasons))
			}
		}
	}
	return errs
}

func coordinator(js *jobsetapi.JobSet) field.ErrorList {
	c := js.Spec.Coordinator
	if c == nil {
		return nil
	}
	path := specPath.Child("coordinator")
	at := slices.IndexFunc(js.Spec.ReplicatedJobs, func(rj jobsetapi.ReplicatedJob) bool { return rj.Name == c.ReplicatedJob })
	if at < 0 {
		return field.ErrorList{field.Invalid(path.Child("replicatedJob"), c.ReplicatedJob, "there is no replicated job of this name")}
	}
	rj := &js.Spec.ReplicatedJobs[at]
	job := &rj.Template.Spec
	switch {
	case c.JobIndex < 0 || c.JobIndex >= int(rj.Replicas):
		return field.ErrorList{field.Invalid(path.Child("jobIndex"), c.JobIndex, fmt.Sprintf("the replicated job has %d Jobs, counted from 0", rj.Replicas))}
	case *job.CompletionMode != batchv1.IndexedCompletion || job.Completions == nil:
		return field.ErrorList{field.Invalid(path.Child("replicatedJob"), c.ReplicatedJob, "its Jobs must be Indexed and have completions")}
	case c.PodIndex < 0 || c.PodIndex >= int(*job.Completions):
		return field.ErrorList{field.Invalid(path.Child("podIndex"), c.PodIndex, fmt.Sprintf("its Jobs have %d pods, counted from 0", *job.Completions))}
	}
	label := fmt.Sprintf("%s-%s-%d-%d.%s", js.Name, c.ReplicatedJob, c.JobIndex, c.PodIndex, subdomain(js))
	return rules.Complaints(path, label, validation.IsValidLabelValue(label))
}

func claims(js *jobsetapi.JobSet) field.ErrorList {
	var errs field.ErrorList
	seen := sets.New[string]()
	mounted, volumes := namesInPods(js)
	for i, policy := range js.Spec.VolumeClaimPolicies {
		for j := range policy.Templates {
			name := policy.Templates[j].Name
			path := specPath.Child("volumeClaimPolicies").Index(i).Child("templates").Index(j).Child("metadata", "name")
			errs = append(errs, rules.Complaints(path, name, validation.IsDNS1123Subdomain(name))...)
			if seen.Has(name) {
				errs = append(errs, field.Duplicate(path, name))
			}
			seen.Insert(name)
			if !mounted.Has(name) {
				errs = append(errs, field.Invalid(path, name, "no container mounts it: add a volumeMount of this name, or remove the claim"))
			}
			if volumes.Has(name) {
				errs = append(errs, field.Invalid(path, name, "a replicated job has a volume of this name: rename one of the two"))
			}
		}
	}
	return errs
}

// namesInPods are those of what containers mount, and of the volumes that there are.
func namesInPods(js *jobsetapi.JobSet) (mounted, volumes sets.Set[string]) {
	mounted, volumes = sets.New[string](), sets.New[string]()
	for i := range js.Spec.ReplicatedJobs {
		pod := &js.Spec.ReplicatedJobs[i].Template.Spec.Template.Spec
		for _, container := range slices.Concat(pod.InitContainers, pod.Containers) {
			for _, mount := range container.VolumeMounts {
				mounted.Insert(mount.Name)
			}
		}
		for _, volume := range pod.Volumes {
			volumes.Insert(volume.Name)
		}
	}
	return mounted, volumes
}
