// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"errors"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/constants"

	"github.com/kueue-trainer/kueue-trainer/pkg/config/kueueconfig"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/testenv"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobclient"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/peers"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/podungate"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/queues"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// Nothing brings a TrainJob here again that is gone, and its Workload still has quota.
func TestYieldComesBackForWorkloadsLeft(t *testing.T) {
	job, left := inttest.Job("uid"), inttest.AdmittedOf("uid")
	expect.Rows(t, map[string]expect.Row[[]client.Object, bool]{
		"a job that is there":          {In: []client.Object{job.DeepCopy(), left.DeepCopy()}},
		"one that is gone":             {},
		"and one that left a Workload": {In: []client.Object{left.DeepCopy()}, Want: true},
	}, func(t *testing.T, tc expect.Row[[]client.Object, bool]) {
		r, _ := newReconciler(t, tc.In...)
		r.deps.inTree = peers.NewInTree(nil, "ours", nil, peers.NewTrainJobs(r.deps.client))
		result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(job)})
		expect.That(t, err == nil && result.RequeueAfter > 0 == tc.Want, "Comes again in %s (%v), want that: %t", result.RequeueAfter, err, tc.Want)
		expect.Same(t, "Unexpected number of records", 0, len(known(r.deps.records)))
	})
}

// Trainer's CRD takes all TrainJobs with it, and what they leave has quota.
func TestQuotaOfAJobThatIsGoneNeedsNoTrainer(t *testing.T) {
	expect.Rows(t, map[string][]client.Object{
		"its pods are gone": nil, "a pod is left": {inttest.PodOf("team", "llm")},
	}, func(t *testing.T, pods []client.Object) {
		left := inttest.AdmittedOf("uid", kit.Held, deleted)
		r, _ := onStatuses(t, append(pods, left)...)
		r.deps.trainer.Set(t.Context(), 0, errors.New("there is no CRD"))
		for range 2 {
			expect.Must(r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(inttest.Job("uid"))}))(t)
		}
		expect.Same(t, "Its Workload is there", len(pods) > 0, inttest.Exists(t, r.deps.client, left))
	})
}

// While nobody knows who looks after TrainJobs, none of them is written, nor told before
// it has lasted; every answer has all of them looked at.
func TestNothingIsWrittenBeforeTheAnswer(t *testing.T) {
	stored, _ := suspendedJob()
	pod := inttest.PodOf("ns", "job", func(pod *corev1.Pod) {
		pod.Spec = corev1.PodSpec{SchedulingGates: []corev1.PodSchedulingGate{{Name: patch.AdmissionGate}}}
	})
	r, recorder := newReconciler(t, stored, pod)
	refused := errors.New("refused")
	all, queue := peers.NewTrainJobs(r.deps.client), workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	expect.NoError(t, all.Source().Start(t.Context(), queue))
	writes := 0
	r.deps.client = kit.Writes(r.deps.client, func(kit.Write) error { writes++; return kit.ErrAnswered })
	look := func(since time.Time) ctrl.Result {
		t.Helper()
		r.deps.inTree = peers.NewInTree(nil, "ours", nil, all)
		expect.NoError(t, r.deps.inTree.Observe(t.Context(), since, false, refused))
		return expect.Must(r.Reconcile(t.Context(), jobRequest))(t)
	}
	look(time.Now())
	if len(recorder.Events) > 0 {
		t.Errorf("Told at once: %s", <-recorder.Events)
	}
	freed, err := (&podungate.Controller{
		Client: r.deps.client, InTree: r.deps.inTree, Trainer: r.deps.trainer,
		Describer: r.deps.Describer, Recorder: r.deps.Recorder, Metrics: r.deps.metrics,
	}).Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(pod)})
	expect.That(t, err == nil && freed.RequeueAfter != 0, "Ungater: %+v, %v; want a time after which it looks again", freed, err)
	look(time.Now().Add(-time.Minute))
	event := <-recorder.Events
	expect.That(t, strings.Contains(event, "Warning InTreeUnknown") && strings.Contains(event, "refused"), "Unexpected event: %s", event)
	expect.That(t, queue.Len() == 1 && r.deps.inTree.CheckKnown(nil) != nil, "After the time every TrainJob must be looked at, and the manager not be ready")
	expect.That(t, writes == 0, "%d writes before it was known who looks after TrainJobs", writes)
	for _, answer := range []bool{false, true, false} {
		for queue.Len() > 0 {
			item, _ := queue.Get()
			queue.Done(item)
		}
		expect.NoError(t, r.deps.inTree.Observe(t.Context(), time.Now(), answer, nil))
		expect.That(t, queue.Len() == 1 && r.deps.inTree.CheckKnown(nil) == nil, "Active %v, and the TrainJob is not looked at", answer)
	}
}

// manages has Kueue manage the namespace, which has no labels, or leave it out.
func manages(r *reconciler, live client.Reader, in bool) {
	selector := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "team", Operator: metav1.LabelSelectorOpDoesNotExist}}}
	if !in {
		selector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}
	}
	r.deps.queues = queues.New(r.deps.client, live, testenv.Kueue(func(settings *kueueconfig.Settings) { settings.ManagedJobsNamespaceSelector = selector }))
}

// labelledAt is an API server where the namespace was labelled, for what manages goes by, at a time.
func labelledAt(live client.Reader, at time.Time) client.Client {
	namespace := kit.Namespace(jobKey.Namespace)
	namespace.ManagedFields = []metav1.ManagedFieldsEntry{
		{Manager: "kubectl-label", Time: new(metav1.NewTime(at)), FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:team":{}}}}`)},
	}
	return kit.Gets(live, func(obj client.Object, _ client.ObjectKey) error {
		into, is := obj.(*corev1.Namespace)
		if !is {
			return nil
		}
		namespace.DeepCopyInto(into)
		return kit.ErrAnswered
	})
}

func TestLeaveAlone(t *testing.T) {
	labelled := time.Unix(2000, 0)
	type scene struct {
		job   *trainjob.TrainJob
		js    *jobsetapi.JobSet
		child *batchv1.Job
		wl    []client.Object
		in    bool
	}
	runs := func(s *scene) { s.job.Spec.Suspend = new(false) }
	runsIn := func(s *scene) { s.in = true; runs(s) }
	gated := func(s *scene) { place(t, s.job, patch.Gated("node")) }
	admitted := func(s *scene) { s.wl = []client.Object{inttest.WorkloadOf(s.job, kit.Admitted)} }
	type row struct {
		change func(*scene)
		alone  bool
		// asked is how often the API server is asked about the namespace.
		asked int
		// told is what its user is told.
		told string
	}
	expect.Rows(t, map[string]row{
		"a job that waits in a namespace that is Kueue's":       {change: func(s *scene) { s.in = true }},
		"one that runs there since before it was":               {change: runsIn, alone: true, asked: 1},
		"one that began later, without its webhook":             {change: kit.All(runsIn, func(s *scene) { s.child.Status.StartTime = new(metav1.NewTime(labelled.Add(time.Second))) }), asked: 1},
		"one that was resumed since, and has not started":       {change: kit.All(runsIn, func(s *scene) { s.child.Status.StartTime = nil }), asked: 1},
		"one that has more pods than its JobSet says":           {change: kit.All(runsIn, func(s *scene) { s.child.Spec.Parallelism = new(int32(64)) }), asked: 1},
		"one of which JobSet has yet to make a part":            {change: kit.All(runsIn, func(s *scene) { s.js.Spec.ReplicatedJobs[0].Replicas = 2 }), asked: 1},
		"one that was placed, and whose Workload is gone":       {change: kit.All(runsIn, func(s *scene) { place(t, s.job, patch.Placement{Name: "node"}) })},
		"one without a queue, which is nobody's, costs no look": {change: kit.All(runsIn, func(s *scene) { s.job.Labels = nil })},
		"one that Kueue managed while it managed all": {change: func(s *scene) {
			s.in, s.job.Labels = true, nil
			place(t, s.job, patch.Gated("node"))
		}, alone: true},
		"one of whose Jobs began later, and has ended":                {change: kit.All(runsIn, func(s *scene) { kit.Completed(s.child); s.child.Status.StartTime = nil }), alone: true, asked: 1},
		"one that ran there since before it was, and failed":          {change: kit.All(runsIn, func(s *scene) { ended(trainer.TrainJobFailed)(s.job) })},
		"one that runs there since before it was, and has a Workload": {change: kit.All(runsIn, admitted)},
		"a job elsewhere":          {change: runs, alone: true, told: "the job runs outside of all quotas"},
		"one that waits elsewhere": {change: func(*scene) {}, alone: true, told: "the job waits for nobody"},
		"one that waits elsewhere, and whose runtime is gone":    {change: kit.All(gated, func(s *scene) { s.job.Spec.RuntimeRef.Name = "gone" }), alone: true, told: "the job waits for nobody"},
		"one that was resumed elsewhere behind the gate":         {change: kit.All(runs, gated), alone: true, told: "the job was resumed with the admission gate"},
		"one that holds quota and runs":                          {change: kit.All(runs, admitted)},
		"one that holds quota and is about to run":               {change: kit.All(runs, admitted, func(s *scene) { suspended(s.child); s.child.Status.StartTime = nil })},
		"one that has ended elsewhere, and has its Workload yet": {change: kit.All(runs, admitted, func(s *scene) { ended(trainer.TrainJobComplete)(s.job) })},
		"one that runs elsewhere, and whose Workload waits":      {change: kit.All(runs, func(s *scene) { s.wl = []client.Object{inttest.WorkloadOf(s.job)} }), alone: true},
	}, func(t *testing.T, tc row) {
		s := &scene{}
		s.job, s.js = disagreeing(true, true, true, time.Now())
		s.js.Spec.ReplicatedJobs = kit.ReplicatedJobs("node", 1)
		s.child = kit.ChildJob(s.js, "node")
		s.child.Status.StartTime = new(metav1.NewTime(labelled))
		tc.change(s)
		r, recorder := newReconciler(t, append(s.wl, s.job, s.js, s.child)...)
		asked := 0
		live := kit.Gets(labelledAt(inttest.Fake().Build(), labelled), func(client.Object, client.ObjectKey) error { asked++; return nil })
		manages(r, live, s.in)
		j := expect.Must(r.deps.observe(t.Context(), jobKey))(t)
		expect.NoError(t, observeNamespace(t.Context(), j).err)
		got := leaveAlone(t.Context(), j)
		expect.NoError(t, got.err)
		expect.Same(t, "It is left alone", tc.alone, got.done)
		expect.Same(t, "Unexpected number of looks at the namespace", tc.asked, asked)
		wantTold(t, eventsSoFar(recorder, ""), tc.told)
	})
}

// jobframework looks at no job without a queue where Kueue does not manage these. The gate goes in two writes, each with a
// time of its own: Trainer's webhook would spell the job's amounts in another way.
func TestWorkloadOfNoQueueGoes(t *testing.T) {
	expect.Rows(t, map[string]expect.Row[func(*kueue.Workload), bool]{
		"it waits":                            {In: kit.Held},
		"it is deleted, and kept by somebody": {In: going, Want: true},
		"it says that the job has ended":      {In: hasFailed, Want: true},
	}, func(t *testing.T, tc expect.Row[func(*kueue.Workload), bool]) {
		stored, js := suspendedJob()
		stored.Labels = nil
		place(t, stored, patch.Gated("node"))
		wl := inttest.WorkloadOf(stored, func(wl *kueue.Workload) { wl.Spec.QueueName = "" }, tc.In)
		r, _ := newReconciler(t, stored, js, wl)
		var entries []bool
		r.deps.client = kit.Writes(r.deps.client, func(w kit.Write) error {
			if job, is := w.Object.(*trainjob.TrainJob); is {
				has := r.deps.Field.Has(&job.Spec)
				expect.Same(t, "Our entry has a time", has, !r.deps.Field.Time(&job.Spec).IsZero())
				entries = append(entries, has)
			}
			return nil
		})
		for range 3 {
			reconcileOnce(t, r)
		}
		expect.Same(t, "It is still there", tc.Want, inttest.Exists(t, r.deps.client, wl))
		expect.Same(t, "Unexpected writes of our entry", []bool{false, true}, entries)
		expect.That(t, !r.deps.Field.HoldsGate(&storedJob(t, r).Spec), "The job keeps the gate")
	})
}

// Nothing else brings a job here again that is left alone, and the quota of a former one of its name hangs on that.
func TestFormerJobIsLookedAtWhereItsSuccessorIsLeftAlone(t *testing.T) {
	stored, _ := suspendedJob()
	former := formerOf(stored)
	wl := inttest.WorkloadOf(former, kit.Admitted, kit.Held, deleted)
	r, _ := newReconciler(t, stored, wl, inttest.PodOf(jobKey.Namespace, jobKey.Name))
	manages(r, r.deps.live, false)
	result, _ := reconcileOnce(t, r)
	expect.That(t, result.RequeueAfter > 0 && inttest.Exists(t, r.deps.client, wl), "It comes again in %s", result.RequeueAfter)
}

// What was written is not written again by a view from before that.
func TestJobThatIsLeftAloneIsNotFreedTwice(t *testing.T) {
	stored, js := suspendedJob()
	place(t, stored, patch.Gated("node"))
	r, _ := newReconciler(t, stored, js)
	manages(r, r.deps.live, false)
	answers := kit.Writes(r.deps.client, func(w kit.Write) error { w.Object.SetGeneration(2); return kit.ErrAnswered })
	written := jobclient.New(answers, answers, r.deps.trainer, r.deps.expectations, r.deps.metrics)
	expect.NoError(t, written.Patch(t.Context(), stored.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"suspend":true}}`))))
	expect.That(t, leaveAlone(t.Context(), jobOf(t, r, stored)).done, "It is not left alone")
	// The write may be lost, with its event.
	expect.Same(t, "Any other job looks again", result{done: true, stale: true, again: jobclient.OverdueAfter}, awaitOwnWrite(t.Context(), jobOf(t, r, stored)), gocmp.AllowUnexported(result{}))
	expect.That(t, r.deps.Field.HoldsGate(&storedJob(t, r).Spec), "It is written by an old view")
}

// How a job ended in a namespace that is not Kueue's says nothing of it once it is.
func TestEndIsNotRememberedOfAJobThatIsLeftAlone(t *testing.T) {
	stored, _ := disagreeing(false, false, false, time.Now())
	stored.Status.Conditions = append(stored.Status.Conditions, kit.True(trainer.TrainJobFailed, ""))
	for _, managed := range []bool{true, false} {
		r, _ := newReconciler(t, stored.DeepCopy())
		manages(r, r.deps.live, managed)
		_, err := look(t, r, jobKey)
		expect.NoError(t, err)
		expect.Same(t, "Its end is remembered", managed, r.deps.records.of(jobKey, stored.UID).ended.condition.Type != "")
	}
}

// Between the two writes that free a job, its user may resume it: Trainer cannot take gate and placement from the JobSet then.
func TestResumedBeforeItWasFree(t *testing.T) {
	template := func(js *jobsetapi.JobSet) *corev1.PodTemplateSpec {
		return &js.Spec.ReplicatedJobs[0].Template.Spec.Template
	}
	at := func(gate string) func(*jobsetapi.JobSet) {
		return func(js *jobsetapi.JobSet) {
			template(js).Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: gate}}
		}
	}
	gated := at(patch.AdmissionGate)
	placed := func(js *jobsetapi.JobSet) {
		template(js).Labels, template(js).Spec.NodeSelector = map[string]string{kueueconstants.PodSetLabel: "node"}, map[string]string{"gpu": "h100"}
	}
	type row struct {
		jobSet            func(*jobsetapi.JobSet)
		entry, jobSetRuns bool
		// waits is set where nobody resumed it, and the second write is missing.
		waits bool
		// noQueue is set where Kueue managed jobs without one, and the namespace is Kueue's.
		noQueue bool
		want    string
	}
	expect.Rows(t, map[string]row{
		"its JobSet keeps the gate, without our entry":        {jobSet: gated, want: "gone"},
		"the same of a job without a queue":                   {jobSet: gated, noQueue: true, want: "gone"},
		"its JobSet keeps a placement, without our entry":     {jobSet: placed, want: "gone"},
		"the same placement of a job without a queue":         {jobSet: placed, noQueue: true, want: "gone"},
		"nobody resumed it, and its JobSet keeps the gate":    {jobSet: gated, waits: true, want: "suspended"},
		"nobody resumed it, and its JobSet keeps a placement": {jobSet: placed, waits: true, want: "suspended"},
		"a job without a queue that never had a gate":         {noQueue: true, want: "suspended"},
		"its JobSet has none":                                 {want: "suspended"},
		"its JobSet has somebody else's":                      {jobSet: at("example.com/mine"), noQueue: true, want: "suspended"},
		"our entry is there":                                  {jobSet: gated, entry: true, want: "suspended"},
		"its JobSet runs":                                     {jobSet: gated, jobSetRuns: true, want: "runs"},
	}, func(t *testing.T, tc row) {
		stored, js := disagreeing(false, false, !tc.jobSetRuns, time.Now())
		js.Spec.ReplicatedJobs = kit.ReplicatedJobs("node", 1)
		kit.With(js, tc.jobSet)
		if tc.entry {
			place(t, stored, patch.Gated("node"))
		}
		if tc.noQueue {
			stored.Labels = nil
		}
		stored.Spec.Suspend = &tc.waits
		r, _ := newReconciler(t, stored, js)
		manages(r, r.deps.live, tc.noQueue)
		_, err := look(t, r, jobKey)
		expect.NoError(t, err)
		expect.Same(t, "Our entry is there", tc.entry || tc.waits, r.deps.Field.Has(&storedJob(t, r).Spec))
		expect.Same(t, "Unexpected JobSet", tc.want, jobSetState(t, r.deps.client, js))
	})
}
