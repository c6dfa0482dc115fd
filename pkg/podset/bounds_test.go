// SPDX-License-Identifier: Apache-2.0

package podset

import (
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// replicated returns a JobSet of one replicated job.
func replicated(name string, replicas int32, completions *int32, mode *batchv1.CompletionMode) *jobsetapi.JobSet {
	rj := jobsetapi.ReplicatedJob{Name: name, Replicas: replicas}
	rj.Template.Spec.Completions, rj.Template.Spec.CompletionMode = completions, mode
	return &jobsetapi.JobSet{Spec: jobsetapi.JobSetSpec{ReplicatedJobs: []jobsetapi.ReplicatedJob{rj}}}
}

// JobSet counts from 0: one digit more for ten is one character too many.
func TestLongestNameThatJobSetTakes(t *testing.T) {
	for name, tc := range map[string]struct {
		jobSet  *jobsetapi.JobSet
		longest int
	}{
		"of ten Jobs":                     {replicated("node", 10, nil, nil), 63 - len("-node-9")},
		"of eleven Jobs":                  {replicated("node", 11, nil, nil), 63 - len("-node-10")},
		"of ten indexed pods":             {replicated("node", 1, new(int32(10)), nil), 63 - len("-node-0-9-abcde")},
		"of pods without an index":        {replicated("node", 1, new(int32(10)), new(batchv1.NonIndexedCompletion)), 63 - len("-node-0")},
		"that leaves room for one letter": {replicated(strings.Repeat("n", 59), 1, nil, nil), 1},
	} {
		t.Run(name, func(t *testing.T) {
			runtime := &blame{}
			expect.Same(t, "Refusals", nil, expect.FieldsAndTypes(validateName(strings.Repeat("a", tc.longest), tc.jobSet, runtime)))
			expect.Same(t, "Refusals", []string{"metadata.name: FieldValueInvalid"}, expect.FieldsAndTypes(validateName(strings.Repeat("a", tc.longest+1), tc.jobSet, runtime)))
		})
	}
}

func TestJobEnded(t *testing.T) {
	for name, tc := range map[string]struct {
		condition batchv1.JobConditionType
		status    corev1.ConditionStatus
		want      bool
	}{
		"complete":      {batchv1.JobComplete, corev1.ConditionTrue, true},
		"failed":        {batchv1.JobFailed, corev1.ConditionTrue, true},
		"not failed":    {batchv1.JobFailed, corev1.ConditionFalse, false},
		"not complete":  {batchv1.JobComplete, corev1.ConditionFalse, false},
		"suspended":     {batchv1.JobSuspended, corev1.ConditionTrue, false},
		"about to fail": {batchv1.JobFailureTarget, corev1.ConditionTrue, false},
	} {
		t.Run(name, func(t *testing.T) {
			expect.Same(t, "JobEnded", tc.want, JobEnded(&batchv1.Job{Status: batchv1.JobStatus{Conditions: []batchv1.JobCondition{{Type: tc.condition, Status: tc.status}}}}))
		})
	}
}

func TestExcessOfClaims(t *testing.T) {
	gpu, nic := corev1.PodResourceClaim{Name: "gpu"}, corev1.PodResourceClaim{Name: "nic"}
	for name, tc := range map[string]struct {
		has, admitted []corev1.PodResourceClaim
		want          string
	}{
		"the same":  {has: []corev1.PodResourceClaim{gpu}, admitted: []corev1.PodResourceClaim{gpu}},
		"fewer":     {admitted: []corev1.PodResourceClaim{gpu}},
		"others":    {has: []corev1.PodResourceClaim{nic}, admitted: []corev1.PodResourceClaim{gpu}, want: "replicated job node has other resource claims"},
		"one more":  {has: []corev1.PodResourceClaim{gpu, nic}, admitted: []corev1.PodResourceClaim{gpu}, want: "replicated job node has other resource claims"},
		"none":      {},
		"the first": {has: []corev1.PodResourceClaim{gpu}, want: "replicated job node has other resource claims"},
	} {
		t.Run(name, func(t *testing.T) {
			js := replicated("node", 1, nil, nil)
			js.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.ResourceClaims = tc.has
			podSets := []kueue.PodSet{{Name: "node", Count: 1, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{ResourceClaims: tc.admitted}}}}
			expect.Same(t, "Excess", tc.want, Excess(js, nil, podSets, nil))
		})
	}
}

func TestJobSetIsSparedWhatItCannotHold(t *testing.T) {
	for replicas, want := range map[int32][]string{maxReplicas - 1: nil, maxReplicas: {"spec.runtimeRef: FieldValueInvalid"}} {
		js := replicated("node", replicas, nil, nil)
		js.Spec.ReplicatedJobs = append(js.Spec.ReplicatedJobs, replicated("other", 1, nil, nil).Spec.ReplicatedJobs...)
		expect.Same(t, "Refusals", want, expect.FieldsAndTypes(validateReplicas(js, &blame{job: &trainjob.TrainJob{}})))
	}
}

// Kueue has no Workload without PodSets.
func TestNothingComesOfARuntimeWithoutReplicatedJobs(t *testing.T) {
	for jobs, want := range map[int][]string{0: {"spec.runtimeRef: FieldValueInvalid"}, 1: nil} {
		js := replicated("node", 1, nil, nil)
		js.Spec.ReplicatedJobs = js.Spec.ReplicatedJobs[:jobs]
		expect.Same(t, "Refusals", want, expect.FieldsAndTypes(Unmade(&trainjob.TrainJob{}, nil, js)))
	}
}

func TestNobodyElseMakesThePods(t *testing.T) {
	other := []string{"spec.runtimeRef: FieldValueInvalid"}
	for name, tc := range map[string]struct {
		jobSet, job *string
		want        []string
	}{
		"nobody is named":        {},
		"their own controllers":  {jobSet: new(jobsetapi.JobSetControllerName), job: new(batchv1.JobControllerName)},
		"another one of JobSets": {jobSet: new("example.com/other"), want: other},
		"another one of Jobs":    {job: new("example.com/other"), want: other},
	} {
		t.Run(name, func(t *testing.T) {
			js := replicated("node", 1, nil, nil)
			js.Spec.ManagedBy, js.Spec.ReplicatedJobs[0].Template.Spec.ManagedBy = tc.jobSet, tc.job
			expect.Same(t, "Refusals", tc.want, expect.FieldsAndTypes(validateManaged(js, &blame{job: &trainjob.TrainJob{}})))
		})
	}
}

// A runtime may have a part that runs nothing.
func TestNoPodsAreNoNegativeNumber(t *testing.T) {
	rj := &replicated("node", 0, new(int32(0)), nil).Spec.ReplicatedJobs[0]
	expect.Same(t, "Refusals", nil, expect.FieldsAndTypes(validateJob(rj, &blame{})))
}
