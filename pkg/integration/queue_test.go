// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/config"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/testenv"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/starts"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
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
	child := func(replicatedJob string, index int) client.Object {
		child := kit.ChildJob(inttest.JobSetOf(trainJob, false), replicatedJob)
		child.Name = fmt.Sprintf("llm-%s-%d", replicatedJob, index)
		return child
	}
	two := inttest.JobSetOf(trainJob, false, jobsetapi.ReplicatedJob{Name: "a", Replicas: 1}, jobsetapi.ReplicatedJob{Name: "b", Replicas: 2})
	queues := []client.Object{inttest.JobSetOf(trainJob, false, two.Spec.ReplicatedJobs[0]), child("a", 0)}
	former := formerOf(trainJob)
	left := inttest.WorkloadOf(former, kit.Held, deleted)
	type row struct {
		// waited is what we remember of earlier looks.
		waited  *record
		change  func(*job)
		objects []client.Object
		want    bool
		// wantTold is whether the user is told that the job queues without its JobSet.
		wantTold bool
	}
	expect.Rows(t, map[string]row{
		"Trainer has made nothing":                      {want: true},
		"JobSet has made nothing":                       {objects: []client.Object{two}, want: true},
		"a child Job is missing":                        {objects: []client.Object{two, child("a", 0), child("b", 0)}, want: true},
		"all child Jobs are there":                      {objects: []client.Object{two, child("a", 0), child("b", 0), child("b", 1)}},
		"Trainer takes too long":                        {waited: looked("a", config.WaitForJobSet, 0), wantTold: true},
		"Trainer takes its time":                        {waited: looked("a", config.WaitForJobSet/2, 0), want: true},
		"it took too long for a former job of the name": {waited: looked("former", config.WaitForJobSet, 0), want: true},
		"a large JobSet, seen just now":                 {waited: looked("a", config.WaitForJobSet, 0), objects: []client.Object{two, child("a", 0)}, want: true},
		"a large JobSet, seen a while ago":              {waited: looked("a", config.WaitForJobSet, config.WaitForJobs), objects: []client.Object{two, child("a", 0)}},
		"the JobSet is in another cluster":              {change: func(j *job) { elsewhere(&j.TrainJob) }},
		"its Workload is on the way":                    {change: func(j *job) { j.deps.expectations.Queued(j.key, j.UID) }, objects: queues, want: true},
		"its Workload is long overdue": {change: func(j *job) {
			expectations, clock := testenv.LedSinceByClock(time.Now())
			j.deps.expectations = expectations
			expectations.Queued(j.key, j.UID)
			clock.SetTime(time.Now().Add(retrySlowly))
		}, objects: queues},
		"a former job's Workload has to be let go": {objects: append(queues, left), want: true},
	}, func(t *testing.T, tc row) {
		r, recorder := newReconciler(t, tc.objects...)
		j := jobOf(t, r, trainJob.DeepCopy())
		if tc.waited != nil {
			*r.deps.records.of(j.key, tc.waited.uid) = *tc.waited
			j = jobOf(t, r, trainJob.DeepCopy())
		}
		got := notYet(t.Context(), kit.With(j, tc.change))
		expect.Same(t, "The user is told", tc.wantTold, len(recorder.Events) > 0)
		expect.That(t, got.err == nil && got.ends() == tc.want && got.unqueued == tc.want && (got.again > 0) == tc.want,
			"notYet() = %+v (%v), want it to end here, and come again: %t", got, got.err, tc.want)
	})
}

// Where Trainer makes nothing, a job waits for as long as the manager is told to.
func TestWaitForJobSet(t *testing.T) {
	const denied = "Warning CannotStart does not queue, because Trainer could not make JobSet job: denied by policy"
	const told = "Normal NotPrepared Trainer has not made JobSet job in %s; the job queues without it, described from its runtime as that is now"
	type row struct {
		wait             time.Duration
		refused, noQueue bool
		// asked is whether refusals were looked for just before, for another job.
		asked bool
		// want are the waits, three at most.
		want     []time.Duration
		wantTold []string
	}
	expect.Rows(t, map[string]row{
		"not at all":                                {},
		"not at all, nor for news of refusals":      {asked: true},
		"for nobody, in no queue":                   {refused: true, noQueue: true},
		"not at all, but Trainer was refused it":    {refused: true, want: []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second}, wantTold: []string{denied}},
		"for a second":                              {wait: time.Second, want: []time.Duration{time.Second}, wantTold: []string{fmt.Sprintf(told, "1s")}},
		"for an hour":                               {wait: time.Hour, want: []time.Duration{time.Hour}, wantTold: []string{fmt.Sprintf(told, "1h0m0s")}},
		"for an hour, and then Trainer was refused": {wait: time.Hour, refused: true, want: []time.Duration{time.Hour, 10 * time.Second, 20 * time.Second}, wantTold: []string{denied}},
	}, func(t *testing.T, tc row) {
		synctest.Test(t, func(t *testing.T) {
			stored, _ := suspendedJob()
			if tc.noQueue {
				stored.Labels = nil
			}
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

// What a former job left goes with its quota; what anybody still needs stays.
func TestReleaseFormer(t *testing.T) {
	type row struct {
		uid    types.UID
		change func(*kueue.Workload)
		// over is set where nobody needs it any more, jobframework included.
		want, over bool
	}
	mine := func(wl *kueue.Workload) { wl.Finalizers = []string{"example.com/mine"} }
	expect.Rows(t, map[string]row{
		"a former job's that is deleted": {uid: "former", change: deleted, want: true},
		"let go, and kept by somebody":   {uid: "former", change: kit.All(deleted, mine), over: true},
		"one that nobody has deleted":    {uid: "former"},
		"one that was never held":        {uid: "former", change: mine},
		"the job's own, for its pods":    {uid: "uid", change: deleted},
		"the job's own, let go":          {uid: "uid", change: kit.All(deleted, mine)},
	}, func(t *testing.T, tc row) {
		stored, _ := suspendedJob()
		former := stored.DeepCopy()
		former.UID = tc.uid
		wl := inttest.WorkloadOf(former, kit.Admitted, kit.Held, tc.change)
		r, _ := newReconciler(t, stored, wl)
		j := jobOf(t, r, stored)
		var list kueue.WorkloadList
		expect.NoError(t, frozen{r.deps.client, j}.List(t.Context(), &list, client.InNamespace("ns"), jobframework.OwnerReferenceIndexFieldMatcher(trainjob.GVK, "job")))
		expect.Same(t, "jobframework has it", !tc.over, len(list.Items) == 1)
		released, err := releaseFormer(t.Context(), j)
		expect.That(t, err == nil && released == tc.want, "releaseFormer() = %t, %v; want %t", released, err, tc.want)
		expect.Same(t, "The Workload is gone", tc.want, !inttest.Exists(t, r.deps.client, wl))
	})
}

// jobframework takes Kueue's finalizer off a finished Workload, if it is asked once more.
func TestOver(t *testing.T) {
	finished := kit.Is(kueue.WorkloadFinished, "")
	expect.Rows(t, map[string]expect.Row[[]func(*kueue.Workload), bool]{
		"it has no Workload":       {},
		"its Workload goes on":     {In: []func(*kueue.Workload){nil}},
		"it is finished":           {In: []func(*kueue.Workload){finished}, Want: true},
		"it is finished, and held": {In: []func(*kueue.Workload){kit.All(finished, kit.Held)}},
		"another one goes on":      {In: []func(*kueue.Workload){finished, func(wl *kueue.Workload) { wl.Name = "another" }}},
	}, func(t *testing.T, tc expect.Row[[]func(*kueue.Workload), bool]) {
		r, _ := newReconciler(t)
		for _, change := range tc.In {
			create(t, r, inttest.WorkloadOf(inttest.Job("a"), change))
		}
		expect.Same(t, "All is done", tc.Want, over(jobOf(t, r, inttest.Job("a"))))
	})
}

// JobSet cannot make a Job whose name another one has.
func TestJobWithoutTheNameOfItsChildJobDoesNotQueue(t *testing.T) {
	_, its := suspendedJob()
	made := kit.ChildJob(its, "node")
	foreign := kit.With(made.DeepCopy(), func(child *batchv1.Job) { child.OwnerReferences = nil })
	unrelated := kit.With(foreign.DeepCopy(), func(child *batchv1.Job) { child.Name = "unrelated" })
	abroad := kit.With(foreign.DeepCopy(), func(child *batchv1.Job) { child.Namespace = "other" })
	goes := func(obj client.Object) { obj.SetDeletionTimestamp(new(metav1.Now())) }
	has := func(finalizer string) func(client.Object) {
		return func(obj client.Object) { obj.SetFinalizers([]string{finalizer}) }
	}
	mine, foreground := has("example.com/mine"), has(metav1.FinalizerDeleteDependents)
	type changes = []func(client.Object)
	type row struct {
		there  []client.Object
		labels map[string]string
		// jobSet and job are changes of its JobSet and of the Job that this made, waits is whether it waits and is not told.
		jobSet, job changes
		waits       bool
		// many is set where the JobSet is to have so many Jobs that all of the namespace are looked at.
		many bool
		want string
	}
	expect.Rows(t, map[string]row{
		"there is no Job yet":            {labels: queueLabel},
		"a finalizer keeps its JobSet":   {labels: queueLabel, jobSet: changes{mine}, want: "JobSet job has finalizer example.com/mine"},
		"one keeps a deleted JobSet":     {labels: queueLabel, jobSet: changes{mine, goes}, want: "JobSet job has finalizer example.com/mine"},
		"one would keep it for its pods": {labels: queueLabel, jobSet: changes{foreground}, want: "JobSet job has finalizer foregroundDeletion"},
		"its JobSet goes after its pods": {labels: queueLabel, jobSet: changes{foreground, goes}, waits: true},
		"a finalizer keeps its Job":      {labels: queueLabel, job: changes{mine}, want: "Job job-node-0 has finalizer example.com/mine"},
		"its Job goes":                   {labels: queueLabel, job: changes{goes}, waits: true},
		"JobSet made the Job":            {there: []client.Object{made}, labels: queueLabel},
		"somebody else made it":          {there: []client.Object{foreign}, labels: queueLabel, want: "needs a Job job-node-0"},
		"another Job beside many":        {there: []client.Object{unrelated, abroad}, labels: queueLabel, many: true},
		"somebody else made one of many": {there: []client.Object{foreign}, labels: queueLabel, many: true, want: "needs a Job job-node-0"},
		"a TrainJob that is in no queue": {there: []client.Object{foreign}},
	}, func(t *testing.T, tc row) {
		stored, js := suspendedJob()
		stored.Labels, js.Spec.ReplicatedJobs = tc.labels, kit.ReplicatedJobs("node", 1)
		if tc.many {
			js.Spec.ReplicatedJobs[0].Replicas = state.AtATime + 1
		}
		r, recorder := newReconciler(t, append(tc.there, stored, js)...)
		jobs := []batchv1.Job{}
		if tc.job != nil {
			jobs = append(jobs, *made.DeepCopy())
			for _, change := range tc.job {
				change(&jobs[0])
			}
		}
		for _, change := range tc.jobSet {
			change(js)
		}
		j := jobOf(t, r, stored)
		outcome := awaitUsable(t.Context(), j, js, jobs)
		waits := tc.waits || tc.want != ""
		expect.That(t, outcome.err == nil && outcome.unqueued == waits, "It queues: %t; error: %v", !outcome.unqueued, outcome.err)
		wantTold(t, eventsSoFar(recorder, ""), tc.want)
		if tc.want != "" {
			j.record.waiting.began = time.Now().Add(-time.Hour)
			again := awaitUsable(t.Context(), j, js, jobs).again
			expect.That(t, outcome.again == starts.FirstUnmade && again == starts.LongestUnmade, "It is looked at after %s, and after an hour after %s", outcome.again, again)
		}
	})
}

var queueLabel = map[string]string{"kueue.x-k8s.io/queue-name": "q"}

// Whatever the webhooks were asked about when a TrainJob was made, it gets the queue of its namespace.
func TestTakeOverlooked(t *testing.T) {
	before, since, later := time.Unix(1000, 0), time.Unix(2000, 0), time.Unix(3000, 0)
	const told = "Normal QueuedLate Put into LocalQueue default, which was there when the TrainJob was made without a queue"
	type row struct {
		labels map[string]string
		// queue is the LocalQueue that is there since a time, webhooks are.
		queue           string
		made, installed time.Time
		selector        *metav1.LabelSelector
		condition       string
		// remote has the queue lead to other clusters.
		remote bool
		// labelled is when its namespace was, by the labels that the webhooks go by.
		labelled time.Time
		want     string
		// wantTold is told where it is not put into a queue.
		wantTold string
	}
	expect.Rows(t, map[string]row{
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
		"its namespace is Kueue's since before":      {queue: "default", made: later, labelled: since, want: "default"},
		"its namespace is Kueue's since later":       {queue: "default", made: later, labelled: later},
		// MultiKueue would reject it, and a job that runs would be stopped for that.
		"the queue leads to other clusters": {queue: "default", made: later, remote: true, wantTold: "Warning QueuedLate not put into LocalQueue default: no other cluster may run the TrainJob"},
	}, func(t *testing.T, tc row) {
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
		if !tc.labelled.IsZero() {
			manages(r, labelledAt(r.deps.live, tc.labelled), true)
		}
		if tc.remote {
			cq := inttest.ClusterQueue("remote")
			cq.Name = "gpus"
			create(t, r, cq, inttest.Check("remote", kueue.MultiKueueControllerName))
		}
		got := takeOverlooked(t.Context(), jobOf(t, r, storedJob(t, r)))
		expect.NoError(t, got.err)
		changed := tc.want != "" && tc.want != tc.labels[kit.QueueLabel]
		expect.Same(t, "It was taken", changed, got.done)
		stored = storedJob(t, r)
		expect.Same(t, "Unexpected queue", tc.want, stored.Labels[kit.QueueLabel])
		expect.Same(t, "Its own label", tc.labels["app"], stored.Labels["app"])
		if changed {
			tc.wantTold = told
		}
		wantTold(t, eventsSoFar(recorder, ""), tc.wantTold)
	})
}
