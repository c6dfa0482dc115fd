// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/config"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestNotYet(t *testing.T) {
	trainJob := inttest.Job("a")
	trainJob.Namespace, trainJob.Labels = "ns", map[string]string{"kueue.x-k8s.io/queue-name": "q"}
	// The API server's clock is ahead of ours.
	trainJob.CreationTimestamp = metav1.Time{Time: time.Now().Add(time.Hour)}
	looked := func(uid types.UID, began, jobSet time.Duration) *record {
		known := &record{uid: uid, waiting: waiting{began: time.Now().Add(-began)}}
		if jobSet > 0 {
			known.waiting.jobSet = time.Now().Add(-jobSet)
		}
		return known
	}
	jobSet := func(spec jobsetapi.JobSetSpec) client.Object {
		js := inttest.JobSetOf(trainJob, false)
		js.Spec = spec
		return js
	}
	child := func(replicatedJob string, index int) client.Object {
		child := doneJob(inttest.JobSetOf(trainJob, false))
		child.Name = fmt.Sprintf("llm-%s-%d", replicatedJob, index)
		child.Labels[jobsetapi.ReplicatedJobNameKey] = replicatedJob
		return child
	}
	two := []jobsetapi.ReplicatedJob{{Name: "a", Replicas: 1}, {Name: "b", Replicas: 2}}
	after := []jobsetapi.ReplicatedJob{{Name: "a", Replicas: 1}, {Name: "b", Replicas: 2, DependsOn: []jobsetapi.DependsOn{{Name: "a"}}}}
	inOrder := &jobsetapi.StartupPolicy{StartupPolicyOrder: jobsetapi.InOrder}
	tests := map[string]struct {
		// waited is what we remember of earlier looks.
		waited    *record
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
		"Trainer takes too long":                             {waited: looked("a", config.WaitForJobSet, 0), wantTold: true},
		"Trainer takes its time":                             {waited: looked("a", config.WaitForJobSet/2, 0), want: true},
		"it took too long for a former job of the name":      {waited: looked("former", config.WaitForJobSet, 0), want: true},
		"a large JobSet, seen just now":                      {waited: looked("a", config.WaitForJobSet, 0), objects: []client.Object{jobSet(jobsetapi.JobSetSpec{ReplicatedJobs: two}), child("a", 0)}, want: true},
		"a large JobSet, seen a while ago":                   {waited: looked("a", config.WaitForJobSet, config.WaitForJobs), objects: []client.Object{jobSet(jobsetapi.JobSetSpec{ReplicatedJobs: two}), child("a", 0)}},
		"the JobSet is in another cluster":                   {managedBy: kueue.MultiKueueControllerName},
		"its Workload is on the way": {
			queued: true, objects: []client.Object{jobSet(jobsetapi.JobSetSpec{ReplicatedJobs: two[:1]}), child("a", 0)}, want: true,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r, recorder := newReconciler(t, tc.objects...)
			j := jobOf(t, r, trainJob.DeepCopy())
			if tc.waited != nil {
				*r.deps.records.of(j.key, tc.waited.uid) = *tc.waited
				j = jobOf(t, r, trainJob.DeepCopy())
			}
			if tc.managedBy != "" {
				j.Spec.ManagedBy = &tc.managedBy
			}
			if tc.queued {
				r.deps.expectations.Queued(j.key, j.UID)
			}
			got := notYet(t.Context(), j)
			expect.Same(t, "The user is told", tc.wantTold, len(recorder.Events) > 0)
			expect.That(t, got.err == nil && got.ends() == tc.want && got.unqueued == tc.want && (got.again > 0) == tc.want,
				"notYet() = %+v (%v), want it to end here, and come again: %t", got, got.err, tc.want)
		})
	}
}

// Where Trainer makes nothing, a job waits for as long as the manager is told to.
func TestWaitForJobSet(t *testing.T) {
	const told = "Normal NotPrepared Trainer has not made JobSet job in %s; the job queues without it, described from its runtime as that is now"
	tests := map[string]struct {
		wait    time.Duration
		refused bool
		// asked is whether refusals were looked for just before, for another job.
		asked bool
		// want are the waits, three at most.
		want     []time.Duration
		wantTold []string
	}{
		"not at all":                                {},
		"not at all, nor for news of refusals":      {asked: true},
		"not at all, but Trainer was refused it":    {refused: true, want: []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second}},
		"for a second":                              {wait: time.Second, want: []time.Duration{time.Second}, wantTold: []string{fmt.Sprintf(told, "1s")}},
		"for an hour":                               {wait: time.Hour, want: []time.Duration{time.Hour}, wantTold: []string{fmt.Sprintf(told, "1h0m0s")}},
		"for an hour, and then Trainer was refused": {wait: time.Hour, refused: true, want: []time.Duration{time.Hour, 10 * time.Second, 20 * time.Second}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stored, _ := suspendedJob()
				r, recorder := newReconciler(t, stored)
				r.deps.waitForJobSet = tc.wait
				if tc.refused {
					expect.NoError(t, r.deps.client.Create(t.Context(), refusalOf(stored.UID, 0)))
				}
				if tc.asked {
					_, _, err := r.deps.refusals.Last(t.Context(), "ns", trainjob.GVK.Kind, []types.UID{"other"}, time.Time{}, time.Time{})
					expect.NoError(t, err)
					time.Sleep(time.Millisecond)
				}
				var got []time.Duration
				for len(got) < 3 {
					o := notYet(t.Context(), jobOf(t, r, stored))
					expect.NoError(t, o.err)
					if !o.ends() {
						break
					}
					got = append(got, o.again)
					time.Sleep(o.again)
				}
				expect.Same(t, "Unexpected waits", tc.want, got)
				expect.Same(t, "Unexpected events", tc.wantTold, eventsSoFar(recorder, "NotPrepared"))
			})
		})
	}
}

// JobSet cannot make a Job whose name another one has.
func TestJobWithoutTheNameOfItsChildJobDoesNotQueue(t *testing.T) {
	tests := map[string]struct {
		// owned has the JobSet control the Job of that name, there that it is there.
		there, owned bool
		labels       map[string]string
		finalizer    string
		want         string
	}{
		"there is no Job yet":            {there: false, labels: queueLabel},
		"a finalizer keeps its JobSet":   {labels: queueLabel, finalizer: "example.com/mine", want: "has finalizer example.com/mine"},
		"JobSet made the Job":            {there: true, owned: true, labels: queueLabel},
		"somebody else made it":          {there: true, labels: queueLabel, want: "needs a Job job-node-0"},
		"a TrainJob that is in no queue": {there: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			stored, js := suspendedJob()
			stored.Labels, js.Spec.ReplicatedJobs = tc.labels, []jobsetapi.ReplicatedJob{{Name: "node", Replicas: 1}}
			r, recorder := newReconciler(t, stored, js)
			child := doneJob(js)
			if child.Name = "job-node-0"; !tc.owned {
				child.OwnerReferences = nil
			}
			if tc.there {
				expect.NoError(t, r.deps.client.Create(t.Context(), child))
			}
			if tc.finalizer != "" {
				js.Finalizers = []string{tc.finalizer}
			}
			outcome := awaitUsable(t.Context(), jobOf(t, r, stored), js, nil)
			expect.That(t, outcome.err == nil && outcome.unqueued == (tc.want != ""), "It queues: %t; error: %v", !outcome.unqueued, outcome.err)
			wantTold(t, eventsSoFar(recorder, ""), tc.want)
		})
	}
}

var queueLabel = map[string]string{"kueue.x-k8s.io/queue-name": "q"}
