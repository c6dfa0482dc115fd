// SPDX-License-Identifier: Apache-2.0

package podset

import (
	"cmp"
	"math"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestExcess(t *testing.T) {
	limits := func(gpus string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse(gpus)}}
	}
	both := func(gpus string) corev1.ResourceRequirements {
		r := limits(gpus)
		r.Requests = r.Limits
		return r
	}
	pods := func(resources corev1.ResourceRequirements) corev1.PodTemplateSpec {
		return corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "node", Resources: resources}}}}
	}
	job := func(name string, replicas, parallelism int32, template corev1.PodTemplateSpec) jobsetapi.ReplicatedJob {
		rj := jobsetapi.ReplicatedJob{Name: name, Replicas: replicas}
		rj.Template.Spec.Parallelism, rj.Template.Spec.Template = &parallelism, template
		return rj
	}
	selecting := func(rj jobsetapi.ReplicatedJob) jobsetapi.ReplicatedJob {
		rj.Template.Spec.ManualSelector = new(true)
		return rj
	}
	labelled := func(rj jobsetapi.ReplicatedJob) jobsetapi.ReplicatedJob {
		rj.Template.Spec.Template.Labels = map[string]string{jobsetapi.JobSetNameKey: "other"}
		return rj
	}
	child := func(parallelism int32, ended bool) batchv1.Job {
		c := batchv1.Job{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{jobsetapi.ReplicatedJobNameKey: "node"}}}
		c.Spec.Parallelism = &parallelism
		if ended {
			c.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
		}
		return c
	}
	// The quota is for two Jobs of two pods with 8 GPUs.
	admitted := []kueue.PodSet{{Name: "node", Count: 4, Template: pods(both("8"))}}
	for name, tc := range map[string]struct {
		jobs      []jobsetapi.ReplicatedJob
		children  []batchv1.Job
		reclaimed int32
		want      string
		// starts is what Unstartable says; empty: the same.
		starts string
	}{
		"it is what was admitted":      {jobs: []jobsetapi.ReplicatedJob{job("node", 2, 2, pods(both("8")))}},
		"a limit stands for a request": {jobs: []jobsetapi.ReplicatedJob{job("node", 2, 2, pods(limits("8")))}},
		"a node past the flavor": {jobs: []jobsetapi.ReplicatedJob{job("node", 2, 2, corev1.PodTemplateSpec{Spec: corev1.PodSpec{NodeName: "a100-0"}})},
			want: "replicated job node names node a100-0 itself, whatever flavor the job was admitted to"},
		// It may have been admitted by a release that took it.
		"pods that say they are another JobSet's": {jobs: []jobsetapi.ReplicatedJob{labelled(job("node", 2, 2, pods(both("8"))))}, starts: "replicated job node has label jobset.sigs.k8s.io/jobset-name, which tells whose pods they are"},
		"pods of a selector":                      {jobs: []jobsetapi.ReplicatedJob{selecting(job("node", 2, 2, pods(both("8"))))}, starts: "replicated job node selects its pods by a selector of its own"},
		"less is no excess":                       {jobs: []jobsetapi.ReplicatedJob{job("node", 1, 2, pods(both("4")))}},
		"as many pods in another arrangement":     {jobs: []jobsetapi.ReplicatedJob{job("node", 1, 4, pods(both("8")))}},
		"another replicated job": {jobs: []jobsetapi.ReplicatedJob{job("node", 2, 2, pods(both("8"))), job("extra", 1, 1, pods(both("8")))},
			want: "replicated job extra is not among those that the job was admitted with"},
		"more Jobs":         {jobs: []jobsetapi.ReplicatedJob{job("node", 3, 2, pods(both("8")))}, want: "replicated job node has 6 pods instead of 4"},
		"more pods per Job": {jobs: []jobsetapi.ReplicatedJob{job("node", 2, 3, pods(both("8")))}, want: "replicated job node has 6 pods instead of 4"},
		"more GPUs per pod": {jobs: []jobsetapi.ReplicatedJob{job("node", 2, 2, pods(limits("9")))}, want: "replicated job node asks for 9 of nvidia.com/gpu per pod instead of 8"},
		"a resource that nothing was charged for": {jobs: []jobsetapi.ReplicatedJob{job("node", 2, 2, pods(corev1.ResourceRequirements{Requests: corev1.ResourceList{"example.com/nic": resource.MustParse("1")}}))},
			want: "replicated job node asks for 1 of example.com/nic per pod instead of 0"},
		"a limit of the pod stands for a request": {jobs: []jobsetapi.ReplicatedJob{job("node", 2, 2, corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			Resources: &corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Gi")}}}})},
			want: "replicated job node asks for 64Gi of memory per pod instead of 0"},
		"a Job that was scaled": {jobs: []jobsetapi.ReplicatedJob{job("node", 2, 2, pods(both("8")))}, children: []batchv1.Job{child(2, false), child(3, false)},
			want: "replicated job node has child Jobs with 5 pods instead of 4"},
		"Jobs that were scaled beyond counting": {jobs: []jobsetapi.ReplicatedJob{job("node", 2, 2, pods(both("8")))}, children: []batchv1.Job{child(math.MaxInt32, false), child(math.MaxInt32, false)},
			want: "replicated job node has child Jobs with 4294967294 pods instead of 4"},
		"a Job that has succeeded gave its quota back": {jobs: []jobsetapi.ReplicatedJob{job("node", 2, 2, pods(both("8")))},
			children: []batchv1.Job{child(2, true), child(2, false)}, reclaimed: 2},
		"a Job runs again whose quota was given back": {jobs: []jobsetapi.ReplicatedJob{job("node", 2, 2, pods(both("8")))},
			children: []batchv1.Job{child(2, false), child(2, false)}, reclaimed: 2,
			want: "replicated job node runs 2 pods again whose quota was given back when they had succeeded"},
	} {
		t.Run(name, func(t *testing.T) {
			js := &jobsetapi.JobSet{Spec: jobsetapi.JobSetSpec{ReplicatedJobs: tc.jobs}}
			reclaimed := []kueue.ReclaimablePod{{Name: "node", Count: tc.reclaimed}}
			expect.Same(t, "Unexpected Excess", tc.want, Excess(js, tc.children, admitted, reclaimed))
			expect.Same(t, "Unexpected Unstartable", cmp.Or(tc.starts, tc.want), Unstartable(js, tc.children, admitted, reclaimed))
		})
	}
}

// A quantity like 1.5Gi is kept behind a pointer, and what is compared may be a cache's.
func TestRequestsOfLeavesTheSpecAsItIs(t *testing.T) {
	memory := resource.MustParse("1.5Gi")
	spec := &corev1.PodSpec{
		Resources: &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceMemory: memory}},
		Overhead:  corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")},
	}
	expect.Same(t, "The second time it asks for something else", requestsOf(spec)[corev1.ResourceMemory], requestsOf(spec)[corev1.ResourceMemory])
	expect.Same(t, "The spec asks for something else by now", resource.MustParse("1.5Gi"), spec.Resources.Requests[corev1.ResourceMemory])
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
