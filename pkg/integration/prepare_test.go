// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

func TestNotYet(t *testing.T) {
	trainJob := func(age time.Duration) *trainjob.TrainJob {
		return &trainjob.TrainJob{ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: "llm", UID: "a", CreationTimestamp: metav1.Time{Time: time.Now().Add(-age)},
		}}
	}
	jobSet := func(spec jobsetapi.JobSetSpec) client.Object {
		return &jobsetapi.JobSet{Spec: spec, ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: "llm", UID: "js", OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(trainJob(0), trainjob.GVK)},
		}}
	}
	child := func(replicatedJob string, index int) client.Object {
		return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: fmt.Sprintf("llm-%s-%d", replicatedJob, index),
			Labels:          map[string]string{jobsetapi.JobSetNameKey: "llm", jobsetapi.ReplicatedJobNameKey: replicatedJob},
			OwnerReferences: []metav1.OwnerReference{{Kind: "JobSet", Name: "llm", UID: "js", Controller: ptr.To(true)}},
		}}
	}
	two := []jobsetapi.ReplicatedJob{{Name: "a", Replicas: 1}, {Name: "b", Replicas: 2}}
	after := []jobsetapi.ReplicatedJob{{Name: "a", Replicas: 1}, {Name: "b", Replicas: 2, DependsOn: []jobsetapi.DependsOn{{Name: "a"}}}}
	inOrder := &jobsetapi.StartupPolicy{StartupPolicyOrder: jobsetapi.InOrder}
	tests := map[string]struct {
		age       time.Duration
		managedBy string
		// queued is whether we made a Workload just now.
		queued  bool
		objects []client.Object
		want    bool
	}{
		"Trainer has made nothing":                           {want: true},
		"JobSet has made nothing":                            {objects: []client.Object{jobSet(jobsetapi.JobSetSpec{ReplicatedJobs: two})}, want: true},
		"a child Job is missing":                             {objects: []client.Object{jobSet(jobsetapi.JobSetSpec{ReplicatedJobs: two}), child("a", 0), child("b", 0)}, want: true},
		"all child Jobs are there":                           {objects: []client.Object{jobSet(jobsetapi.JobSetSpec{ReplicatedJobs: two}), child("a", 0), child("b", 0), child("b", 1)}},
		"a child Job that waits for another does not count":  {objects: []client.Object{jobSet(jobsetapi.JobSetSpec{ReplicatedJobs: after}), child("a", 0)}},
		"child Jobs that start in order come with the first": {objects: []client.Object{jobSet(jobsetapi.JobSetSpec{ReplicatedJobs: two, StartupPolicy: inOrder}), child("a", 0)}},
		"Trainer takes too long":                             {age: trainerPatience},
		"the JobSet is in another cluster":                   {managedBy: kueue.MultiKueueControllerName},
		"its Workload is on the way": {
			queued: true, objects: []client.Object{jobSet(jobsetapi.JobSetSpec{ReplicatedJobs: two[:1]}), child("a", 0)}, want: true,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c := byOwner(fake.NewClientBuilder().WithScheme(testScheme(t)).WithObjects(tc.objects...)).Build()
			j := &job{TrainJob: *trainJob(tc.age), env: &environment{client: c, expectations: &expectations{}}}
			if tc.managedBy != "" {
				j.Spec.ManagedBy = &tc.managedBy
			}
			if tc.queued {
				j.env.expectations.queuedNow(client.ObjectKeyFromObject(&j.TrainJob), j.UID)
			}
			got, err := j.notYet(t.Context())
			if err != nil || got != tc.want || (j.again > 0) != tc.want {
				t.Errorf("notYet() = %t, %v, again in %s; want %t", got, err, j.again, tc.want)
			}
		})
	}
}
