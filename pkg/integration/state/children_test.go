// SPDX-License-Identifier: Apache-2.0

package state

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestHasPods(t *testing.T) {
	condition := func(kind batchv1.JobConditionType, status corev1.ConditionStatus) batchv1.JobStatus {
		return batchv1.JobStatus{Conditions: []batchv1.JobCondition{{Type: kind, Status: status}}}
	}
	terminating := func(status batchv1.JobStatus) batchv1.JobStatus {
		status.Terminating = ptr.To[int32](1)
		return status
	}
	cases := map[string]struct {
		suspended bool
		// deleted is how long ago.
		deleted time.Duration
		status  batchv1.JobStatus
		want    bool
	}{
		"a Job that was made suspended and never looked at":    {suspended: true},
		"a Job that its controller knows to be suspended":      {suspended: true, status: condition(batchv1.JobSuspended, corev1.ConditionTrue)},
		"a suspended Job whose controller last saw it resumed": {suspended: true, status: condition(batchv1.JobSuspended, corev1.ConditionFalse), want: true},
		"a suspended Job that ran from the beginning":          {suspended: true, status: batchv1.JobStatus{StartTime: ptr.To(metav1.Now())}, want: true},
		"a suspended Job with a pod on its way out": {
			suspended: true, status: terminating(condition(batchv1.JobSuspended, corev1.ConditionTrue)), want: true},
		"a Job that may run, without a pod yet":               {want: true},
		"a Job that is done":                                  {status: condition(batchv1.JobComplete, corev1.ConditionTrue)},
		"a Job that is deleted, whose controller may be busy": {deleted: time.Second, want: true},
		"a Job that was deleted and stays":                    {deleted: time.Minute},
		"a Job that was deleted, with a pod on its way out":   {deleted: time.Minute, status: terminating(batchv1.JobStatus{}), want: true},
		"a Job that failed, with a pod on its way out":        {status: terminating(condition(batchv1.JobFailed, corev1.ConditionTrue)), want: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			job := batchv1.Job{Status: tc.status}
			if tc.deleted > 0 {
				job.DeletionTimestamp = new(metav1.NewTime(time.Now().Add(-tc.deleted)))
			}
			if tc.suspended {
				job.Spec.Suspend = ptr.To(true)
			}
			expect.Same(t, "Unexpected HasPods", tc.want, HasPods(job))
		})
	}
}

func TestLacksGate(t *testing.T) {
	ours := corev1.PodSchedulingGate{Name: patch.AdmissionGate}
	tests := map[string]struct {
		placement patch.Placement
		gates     []corev1.PodSchedulingGate
		want      bool
	}{
		"the job is placed":                     {placement: patch.Placement{Name: "node"}},
		"the JobSet has the gate":               {placement: patch.Gated("node"), gates: []corev1.PodSchedulingGate{ours}},
		"the JobSet has another gate":           {placement: patch.Gated("node"), gates: []corev1.PodSchedulingGate{{Name: "other"}}, want: true},
		"the gate is of another replicated job": {placement: patch.Gated("launcher")},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			field := patch.Of(trainjob.Trainer23)
			job := &trainjob.TrainJob{}
			expect.Must(field.Set(&job.Spec, []patch.Placement{tc.placement}))(t)
			js := &jobsetapi.JobSet{Spec: jobsetapi.JobSetSpec{ReplicatedJobs: []jobsetapi.ReplicatedJob{{Name: "node"}}}}
			js.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.SchedulingGates = tc.gates
			expect.Same(t, "Unexpected LacksGate", tc.want, LacksGate(js, job, field))
		})
	}
}

func TestChildJobsMade(t *testing.T) {
	two := []jobsetapi.ReplicatedJob{{Name: "a", Replicas: 1}, {Name: "b", Replicas: 2}}
	after := []jobsetapi.ReplicatedJob{two[0], {Name: "b", Replicas: 2, DependsOn: []jobsetapi.DependsOn{{Name: "a"}}}}
	inOrder := &jobsetapi.StartupPolicy{StartupPolicyOrder: jobsetapi.InOrder}
	tests := map[string]struct {
		spec jobsetapi.JobSetSpec
		made []string
		want bool
	}{
		"none is made":                  {spec: jobsetapi.JobSetSpec{ReplicatedJobs: two}},
		"one is missing":                {spec: jobsetapi.JobSetSpec{ReplicatedJobs: two}, made: []string{"a", "b"}},
		"all are there":                 {spec: jobsetapi.JobSetSpec{ReplicatedJobs: two}, made: []string{"a", "b", "b"}, want: true},
		"one waits for another":         {spec: jobsetapi.JobSetSpec{ReplicatedJobs: after}, made: []string{"a"}, want: true},
		"they start in order":           {spec: jobsetapi.JobSetSpec{ReplicatedJobs: two, StartupPolicy: inOrder}, made: []string{"a"}, want: true},
		"the first in order is missing": {spec: jobsetapi.JobSetSpec{ReplicatedJobs: two, StartupPolicy: inOrder}, made: []string{"b", "b"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			jobs := make([]batchv1.Job, len(tc.made))
			for i, of := range tc.made {
				jobs[i].Labels = map[string]string{jobsetapi.ReplicatedJobNameKey: of}
			}
			expect.Same(t, "Unexpected ChildJobsMade", tc.want, ChildJobsMade(&jobsetapi.JobSet{Spec: tc.spec}, jobs))
		})
	}
}
