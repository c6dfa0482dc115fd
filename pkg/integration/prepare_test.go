// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/awaited"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/podsets"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/queues"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

func TestNotYet(t *testing.T) {
	trainJob := func() *trainjob.TrainJob {
		return &trainjob.TrainJob{ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: "llm", UID: "a", Labels: map[string]string{"kueue.x-k8s.io/queue-name": "q"},
			// The API server's clock is ahead of ours.
			CreationTimestamp: metav1.Time{Time: time.Now().Add(time.Hour)},
		}}
	}
	looked := func(uid types.UID, began, jobSet time.Duration) *waiting {
		w := &waiting{uid: uid, began: time.Now().Add(-began)}
		if jobSet > 0 {
			w.jobSet = time.Now().Add(-jobSet)
		}
		return w
	}
	jobSet := func(spec jobsetapi.JobSetSpec) client.Object {
		return &jobsetapi.JobSet{Spec: spec, ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: "llm", UID: "js", OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(trainJob(), trainjob.GVK)},
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
		// waited is what we remember of earlier looks.
		waited    *waiting
		managedBy string
		// queued is whether we made a Workload just now.
		queued  bool
		objects []client.Object
		want    bool
		// wantTold is whether the user is told that the job queues without its JobSet.
		wantTold bool
	}{
		"Trainer has made nothing":                           {want: true},
		"JobSet has made nothing":                            {objects: []client.Object{jobSet(jobsetapi.JobSetSpec{ReplicatedJobs: two})}, want: true},
		"a child Job is missing":                             {objects: []client.Object{jobSet(jobsetapi.JobSetSpec{ReplicatedJobs: two}), child("a", 0), child("b", 0)}, want: true},
		"all child Jobs are there":                           {objects: []client.Object{jobSet(jobsetapi.JobSetSpec{ReplicatedJobs: two}), child("a", 0), child("b", 0), child("b", 1)}},
		"a child Job that waits for another does not count":  {objects: []client.Object{jobSet(jobsetapi.JobSetSpec{ReplicatedJobs: after}), child("a", 0)}},
		"child Jobs that start in order come with the first": {objects: []client.Object{jobSet(jobsetapi.JobSetSpec{ReplicatedJobs: two, StartupPolicy: inOrder}), child("a", 0)}},
		"Trainer takes too long":                             {waited: looked("a", awaited.JobSet, 0), wantTold: true},
		"Trainer takes its time":                             {waited: looked("a", awaited.JobSet/2, 0), want: true},
		"it took too long for a former job of the name":      {waited: looked("former", awaited.JobSet, 0), want: true},
		"a large JobSet, seen just now":                      {waited: looked("a", awaited.JobSet, 0), objects: []client.Object{jobSet(jobsetapi.JobSetSpec{ReplicatedJobs: two}), child("a", 0)}, want: true},
		"a large JobSet, seen a while ago":                   {waited: looked("a", awaited.JobSet, awaited.Jobs), objects: []client.Object{jobSet(jobsetapi.JobSetSpec{ReplicatedJobs: two}), child("a", 0)}},
		"the JobSet is in another cluster":                   {managedBy: kueue.MultiKueueControllerName},
		"its Workload is on the way": {
			queued: true, objects: []client.Object{jobSet(jobsetapi.JobSetSpec{ReplicatedJobs: two[:1]}), child("a", 0)}, want: true,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c := inttest.ByOwner(fake.NewClientBuilder().WithScheme(inttest.Scheme(t)).WithObjects(append(tc.objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}})...)).Build()
			recorder := events.NewFakeRecorder(2)
			j := &job{TrainJob: *trainJob(), env: &environment{Describer: &podsets.Describer{Field: patch.Of(trainjob.Trainer23), Recorder: jobevents.New(recorder)}, client: c, live: c, refusals: jobevents.NewRefusals(liveEvents(c, nil)), state: state.FromCache(c), queues: queues.New(c, c, inttest.KueueDefaults(t)), expectations: inttest.LedSince(time.Time{}), memory: &memory{}, starts: newStarts(time.Hour)}}
			if tc.waited != nil {
				j.env.memory.waits = map[types.NamespacedName]*waiting{client.ObjectKeyFromObject(&j.TrainJob): tc.waited}
			}
			if tc.managedBy != "" {
				j.Spec.ManagedBy = &tc.managedBy
			}
			if tc.queued {
				j.env.expectations.Queued(client.ObjectKeyFromObject(&j.TrainJob), j.UID)
			}
			got := j.notYet(t.Context())
			if told := len(recorder.Events) > 0; told != tc.wantTold {
				t.Errorf("The user is told: %t, want %t", told, tc.wantTold)
			}
			if got.err != nil || got.ends() != tc.want || got.unqueued != tc.want || (got.again > 0) != tc.want {
				t.Errorf("notYet() = %+v (%v), want it to end here, and come again: %t", got, got.err, tc.want)
			}
		})
	}
}
