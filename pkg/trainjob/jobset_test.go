// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

// Trainer names the JobSet as the TrainJob, and so may somebody else name one.
func TestJobSetIsTheJobsOwn(t *testing.T) {
	job := &TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "llm", UID: "a"}}
	former := &TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "llm", UID: "b"}}
	tests := map[string]struct {
		owners []metav1.OwnerReference
		want   bool
	}{
		"the job controls it":                 {owners: []metav1.OwnerReference{*metav1.NewControllerRef(job, GVK)}, want: true},
		"a former job of that name does":      {owners: []metav1.OwnerReference{*metav1.NewControllerRef(former, GVK)}},
		"nobody does":                         {},
		"the job is an owner, not controller": {owners: []metav1.OwnerReference{{APIVersion: GVK.GroupVersion().String(), Kind: GVK.Kind, Name: "llm", UID: "a"}}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			js := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "llm", OwnerReferences: tc.owners}}
			scheme := runtime.NewScheme()
			if err := jobsetapi.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(js).Build()
			got, err := JobSetOf(t.Context(), c, job)
			if err != nil || (got != nil) != tc.want {
				t.Errorf("JobSetOf = %v, %v; want one: %t", got, err, tc.want)
			}
		})
	}
}
