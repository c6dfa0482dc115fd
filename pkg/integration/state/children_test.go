// SPDX-License-Identifier: Apache-2.0

package state

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestHasPods(t *testing.T) {
	condition := func(kind batchv1.JobConditionType, status corev1.ConditionStatus) []batchv1.JobCondition {
		return []batchv1.JobCondition{{Type: kind, Status: status}}
	}
	suspended := batchv1.JobSpec{Suspend: ptr.To(true)}
	cases := map[string]struct {
		job  batchv1.Job
		want bool
	}{
		"a Job that was made suspended and never looked at": {job: batchv1.Job{Spec: suspended}},
		"a Job that its controller knows to be suspended": {
			job: batchv1.Job{Spec: suspended, Status: batchv1.JobStatus{Conditions: condition(batchv1.JobSuspended, corev1.ConditionTrue)}},
		},
		"a suspended Job whose controller last saw it resumed": {
			job:  batchv1.Job{Spec: suspended, Status: batchv1.JobStatus{Conditions: condition(batchv1.JobSuspended, corev1.ConditionFalse)}},
			want: true,
		},
		"a suspended Job that ran from the beginning": {
			job:  batchv1.Job{Spec: suspended, Status: batchv1.JobStatus{StartTime: ptr.To(metav1.Now())}},
			want: true,
		},
		"a suspended Job with a pod on its way out": {
			job: batchv1.Job{Spec: suspended, Status: batchv1.JobStatus{
				Terminating: ptr.To[int32](1), Conditions: condition(batchv1.JobSuspended, corev1.ConditionTrue)}},
			want: true,
		},
		"a Job that may run, without a pod yet": {want: true},
		"a Job that is done": {
			job: batchv1.Job{Status: batchv1.JobStatus{Conditions: condition(batchv1.JobComplete, corev1.ConditionTrue)}},
		},
		"a Job that failed, with a pod on its way out": {
			job: batchv1.Job{Status: batchv1.JobStatus{
				Terminating: ptr.To[int32](1), Conditions: condition(batchv1.JobFailed, corev1.ConditionTrue)}},
			want: true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := HasPods(tc.job); got != tc.want {
				t.Errorf("HasPods = %t, want %t", got, tc.want)
			}
		})
	}
}
