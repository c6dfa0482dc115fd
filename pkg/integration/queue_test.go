// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/config"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/watches"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/pkg/webhookconfig"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
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
		"Trainer has made nothing":                      {want: true},
		"JobSet has made nothing":                       {objects: []client.Object{jobSet(jobsetapi.JobSetSpec{ReplicatedJobs: two})}, want: true},
		"a child Job is missing":                        {objects: []client.Object{jobSet(jobsetapi.JobSetSpec{ReplicatedJobs: two}), child("a", 0), child("b", 0)}, want: true},
		"all child Jobs are there":                      {objects: []client.Object{jobSet(jobsetapi.JobSetSpec{ReplicatedJobs: two}), child("a", 0), child("b", 0), child("b", 1)}},
		"Trainer takes too long":                        {waited: looked("a", config.WaitForJobSet, 0), wantTold: true},
		"Trainer takes its time":                        {waited: looked("a", config.WaitForJobSet/2, 0), want: true},
		"it took too long for a former job of the name": {waited: looked("former", config.WaitForJobSet, 0), want: true},
		"a large JobSet, seen just now":                 {waited: looked("a", config.WaitForJobSet, 0), objects: []client.Object{jobSet(jobsetapi.JobSetSpec{ReplicatedJobs: two}), child("a", 0)}, want: true},
		"a large JobSet, seen a while ago":              {waited: looked("a", config.WaitForJobSet, config.WaitForJobs), objects: []client.Object{jobSet(jobsetapi.JobSetSpec{ReplicatedJobs: two}), child("a", 0)}},
		"the JobSet is in another cluster":              {managedBy: kueue.MultiKueueControllerName},
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
	const denied = "Warning CannotStart does not queue, because Trainer could not make JobSet job: denied by policy"
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
		"not at all, but Trainer was refused it":    {refused: true, want: []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second}, wantTold: []string{denied}},
		"for a second":                              {wait: time.Second, want: []time.Duration{time.Second}, wantTold: []string{fmt.Sprintf(told, "1s")}},
		"for an hour":                               {wait: time.Hour, want: []time.Duration{time.Hour}, wantTold: []string{fmt.Sprintf(told, "1h0m0s")}},
		"for an hour, and then Trainer was refused": {wait: time.Hour, refused: true, want: []time.Duration{time.Hour, 10 * time.Second, 20 * time.Second}, wantTold: []string{denied}},
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
					expect.Pass(time.Millisecond)
				}
				var got []time.Duration
				for len(got) < 3 {
					o := notYet(t.Context(), jobOf(t, r, stored))
					expect.NoError(t, o.err)
					if !o.ends() {
						break
					}
					got = append(got, o.again)
					expect.Same(t, "Time that is left, asked at once", o.again, notYet(t.Context(), jobOf(t, r, stored)).again)
					expect.Pass(o.again)
				}
				expect.Same(t, "Unexpected waits", tc.want, got)
				expect.Same(t, "Unexpected events", tc.wantTold, eventsSoFar(recorder, ""))
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

// Whatever the webhooks were asked about when a TrainJob was made, it gets the queue of its namespace.
func TestTakeOverlooked(t *testing.T) {
	before, since, later := time.Unix(1000, 0), time.Unix(2000, 0), time.Unix(3000, 0)
	const told = "Normal QueuedLate Put into LocalQueue default, which was there when the TrainJob was made without a queue"
	tests := map[string]struct {
		labels map[string]string
		// queue is the LocalQueue that is there since a time, webhooks are.
		queue           string
		made, installed time.Time
		selector        *metav1.LabelSelector
		condition       string
		want            string
	}{
		"made after the queue":                       {queue: "default", made: later, want: "default"},
		"with labels of its own":                     {queue: "default", made: later, labels: map[string]string{"app": "llm"}, want: "default"},
		"in the second of the queue":                 {queue: "default", made: since, want: "default"},
		"made before the queue":                      {queue: "default", made: before},
		"made before the webhooks were there":        {queue: "default", made: since, installed: later},
		"a queue of another name":                    {queue: "gpus", made: later},
		"it names a queue":                           {queue: "default", made: later, labels: queueLabel, want: "q"},
		"the webhooks are not for its namespace":     {queue: "default", made: later, selector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}},
		"an admin's condition may have left it out":  {queue: "default", made: later, condition: "mine"},
		"the webhooks are asked about queued ones":   {queue: "default", made: later, condition: "queued", want: "default"},
		"the webhooks are not asked about their own": {queue: "default", made: later, condition: "not-own", want: "default"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			stored, _ := disagreeing(false, false, false, time.Now())
			stored.Labels, stored.CreationTimestamp = tc.labels, metav1.NewTime(tc.made)
			queue := kit.LocalQueue("ns", tc.queue, "gpus")
			queue.CreationTimestamp = metav1.NewTime(since)
			webhooks := &admissionregistrationv1.MutatingWebhookConfiguration{
				ObjectMeta: metav1.ObjectMeta{Name: webhookconfig.Installed.Mutating, CreationTimestamp: metav1.NewTime(tc.installed)},
				Webhooks:   []admissionregistrationv1.MutatingWebhook{{NamespaceSelector: tc.selector, MatchConditions: []admissionregistrationv1.MatchCondition{{Name: "not-deleting"}}}},
			}
			if tc.condition != "" {
				webhooks.Webhooks[0].MatchConditions = append(webhooks.Webhooks[0].MatchConditions, admissionregistrationv1.MatchCondition{Name: tc.condition})
			}
			r, recorder := newReconciler(t, stored, queue, webhooks)
			got := takeOverlooked(t.Context(), jobOf(t, r, storedJob(t, r)))
			expect.NoError(t, got.err)
			changed := tc.want != "" && tc.want != tc.labels[kit.QueueLabel]
			expect.Same(t, "It was taken", changed, got.done)
			stored = storedJob(t, r)
			expect.Same(t, "Unexpected queue", tc.want, stored.Labels[kit.QueueLabel])
			expect.Same(t, "Its own label", tc.labels["app"], stored.Labels["app"])
			if changed {
				expect.Same(t, "Unexpected events", []string{told}, eventsSoFar(recorder, ""))
			}
		})
	}
}

// MultiKueue would reject it, and a job that runs would be stopped for that.
func TestOverlookedJobOfThisClusterStaysOutOfMultiKueue(t *testing.T) {
	stored, _ := disagreeing(false, false, false, time.Now())
	stored.Labels, stored.CreationTimestamp = nil, metav1.NewTime(time.Unix(3000, 0))
	webhooks := &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: webhookconfig.Installed.Mutating},
		Webhooks:   []admissionregistrationv1.MutatingWebhook{{MatchConditions: []admissionregistrationv1.MatchCondition{{Name: "not-deleting"}}}},
	}
	behind := inttest.ClusterQueue("remote")
	r, recorder := newReconciler(t, stored, kit.LocalQueue("ns", "default", behind.Name), behind, inttest.Check("remote", kueue.MultiKueueControllerName), webhooks)
	got := takeOverlooked(t.Context(), jobOf(t, r, storedJob(t, r)))
	expect.That(t, got == result{}, "takeOverlooked() = %+v", got)
	expect.Same(t, "Unexpected queue", "", storedJob(t, r).Labels[kit.QueueLabel])
	wantTold(t, eventsSoFar(recorder, ""), "Warning QueuedLate not put into LocalQueue default: no other cluster may run the TrainJob")
}

// The queue may be seen after the TrainJobs that are to get it.
func TestUnqueuedOf(t *testing.T) {
	job := func(namespace, name string, labels map[string]string, status ...string) *trainjob.TrainJob {
		j := &trainjob.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}}
		for _, s := range status {
			j.Status.Conditions = append(j.Status.Conditions, kit.True(s, ""))
		}
		return j
	}
	m := watches.Mapper{Cached: inttest.Fake(job("a", "unqueued", nil), job("a", "queued", queueLabel), job("a", "over", nil, "Complete"), job("b", "elsewhere", nil)).Build()}
	queue := kit.LocalQueue("a", "default", "gpus")
	var got []string
	for _, request := range m.UnqueuedOf(t.Context(), queue) {
		got = append(got, request.String())
	}
	expect.Same(t, "Unexpected TrainJobs", []string{"a/unqueued"}, got)

	passes := watches.MadeDefault()
	expect.That(t, passes.Create(event.CreateEvent{Object: queue}) && !passes.Create(event.CreateEvent{Object: kit.LocalQueue("a", "gpus", "gpus")}) &&
		!passes.Update(event.UpdateEvent{ObjectOld: queue, ObjectNew: queue}), "other events pass than the making of a LocalQueue default")
}
