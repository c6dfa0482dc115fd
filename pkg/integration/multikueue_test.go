// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/placeholder"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// What runs in another cluster runs by the runtime that is there.
func TestRuntimeThatIsGoneDoesNotDisturbAJobElsewhere(t *testing.T) {
	stored, _ := suspendedJob()
	kit.With(stored, elsewhere).Spec.RuntimeRef.Name = "gone"
	stored.Status.JobsStatus = []trainer.JobStatus{{Name: "node", Succeeded: new(int32(1))}}
	given := []kueue.ReclaimablePod{{Name: "node", Count: 1}}
	for _, ready := range []bool{true, false} {
		wl := inttest.WorkloadOf(stored, kit.Admitted, func(wl *kueue.Workload) { wl.Status.ReclaimablePods = given })
		if ready {
			kit.Is(kueue.WorkloadPodsReady, "")(wl)
		}
		r, _ := newReconciler(t, stored.DeepCopy(), wl)
		j := jobOf(t, r, stored)
		expect.Same(t, "its pods are ready", ready, j.PodsReady(t.Context(), nil))
		expect.Same(t, "reclaimable pods", given, expect.Must(j.ReclaimablePods(t.Context(), nil))(t))
	}
}

// Before 2.3, Trainer runs what MultiKueue runs in another cluster here as well, without a gate.
func TestJobOfAnotherClusterIsNotResumedForATrainerThatRunsIt(t *testing.T) {
	type row struct {
		served trainjob.TrainerVersion
		// jobSet: a Trainer has made one here.
		jobSet bool
		told   string
	}
	expect.Rows(t, map[string]row{
		"Trainer 2.3":                          {served: trainjob.Trainer23},
		"Trainer 2.2":                          {served: trainjob.Trainer22, told: "PodSetsUnknown"},
		"Trainer 2.2, which has made a JobSet": {served: trainjob.Trainer22, jobSet: true, told: "PodSetsUnknown"},
		"the CRD of 2.3, and what 2.2 made":    {served: trainjob.Trainer23, jobSet: true, told: "TrainerBehind"},
	}, func(t *testing.T, tc row) {
		stored, js := suspendedJob()
		kit.With(stored, elsewhere)
		r, recorder := newReconciler(t, stored)
		r.deps = r.deps.of(tc.served)
		create(t, r, inttest.WorkloadOf(stored, kit.Admitted))
		if tc.jobSet {
			create(t, r, js)
		}
		j := jobOf(t, r, stored)
		_, j.decision.err = j.PodSets(t.Context(), nil)
		if j.decision.err == nil {
			j.decision.err = j.RunWithPodSetsInfo(t.Context(), nil, nil)
		}
		_ = followUp(t.Context(), j)
		expect.That(t, (j.decision.err == nil) == (tc.told == "") && j.IsSuspended() == (tc.told != ""), "It is suspended: %t, %v", j.IsSuspended(), j.decision.err)
		wantTold(t, eventsSoFar(recorder, tc.told), tc.told)
	})
}

// What runs in another cluster has no JobSet here: what its runtime has of the admitted PodSets counts, as MultiKueue copies
// the status of it.
func TestRunOfAnotherCluster(t *testing.T) {
	type row struct {
		podSet string
		// count is how many pods it was admitted with; 1 where it is left out.
		count       int32
		ready, over int32
		want        bool
		reclaimable []kueue.ReclaimablePod
	}
	expect.Rows(t, map[string]row{
		"its pods are not ready":             {podSet: "node"},
		"its pods are ready":                 {podSet: "node", ready: 1, want: true},
		"its pods are done":                  {podSet: "node", over: 1, want: true, reclaimable: []kueue.ReclaimablePod{{Name: "node", Count: 1}}},
		"a part came into the runtime since": {podSet: "another", want: true},
		"the runtime has fewer pods since":   {podSet: "node", count: 2, over: 1},
	}, func(t *testing.T, tc row) {
		stored, _ := suspendedJob()
		kit.With(stored, elsewhere).Status.JobsStatus = []trainer.JobStatus{{Name: "node", Ready: &tc.ready, Succeeded: &tc.over}}
		r, _ := newReconciler(t, stored)
		expect.That(t, !jobOf(t, r, kit.With(stored.DeepCopy(), func(job *trainjob.TrainJob) { job.Spec.RuntimeRef.Name = "gone" })).PodsReady(t.Context(), nil), "It is ready without quota")
		create(t, r, inttest.WorkloadOf(stored, kit.Admitted, func(wl *kueue.Workload) {
			wl.Spec.PodSets = []kueue.PodSet{{Name: kueue.PodSetReference(tc.podSet), Count: max(1, tc.count)}}
		}))
		j := jobOf(t, r, stored)
		expect.Same(t, "Its pods are ready", tc.want, j.PodsReady(t.Context(), nil))
		expect.Same(t, "Unexpected reclaimable pods", tc.reclaimable, expect.Must(j.ReclaimablePods(t.Context(), nil))(t))
	})
}

// MultiKueue leaves a status where it is until the next cluster says something.
func TestRunIsNotJudgedByWhatItsFormerClusterSaid(t *testing.T) {
	stored, _ := suspendedJob()
	kit.With(stored, elsewhere).Status.JobsStatus = []trainer.JobStatus{{Name: "node", Ready: new(int32(1)), Succeeded: new(int32(1))}}
	r, _ := newReconciler(t, stored)
	done := []kueue.ReclaimablePod{{Name: "node", Count: 1}}
	create(t, r, inttest.WorkloadOf(stored, func(wl *kueue.Workload) {
		wl.Spec.PodSets = []kueue.PodSet{{Name: "node", Count: 1}}
		wl.Status.ReclaimablePods = done
	}))
	judged := func(want bool, reclaimable []kueue.ReclaimablePod) {
		t.Helper()
		j := jobOf(t, r, stored)
		expect.Same(t, "Its pods are ready", want, j.PodsReady(t.Context(), nil))
		expect.Same(t, "Unexpected reclaimable pods", reclaimable, expect.Must(j.ReclaimablePods(t.Context(), nil))(t))
	}
	noteFormerCluster(t.Context(), jobOf(t, r, stored))
	judged(false, nil)
	admitted := func(at time.Time) {
		changeWorkload(t, r.deps.client, kit.All(giveQuota, kit.Since(at), func(wl *kueue.Workload) { wl.Status.ReclaimablePods = nil }))
	}
	// It was evicted long ago, and has quota again, while no cluster has taken it.
	admitted(time.Now().Add(-time.Hour))
	changeWorkload(t, r.deps.client, kit.Isnt(kueue.WorkloadAdmitted, "NoReservation"))
	judged(false, nil)
	// Another process has not seen it without quota.
	r.deps.records = &records{}
	noteFormerCluster(t.Context(), jobOf(t, r, stored))
	judged(false, nil)
	stored.Spec.Suspend = new(false)
	admitted(time.Now())
	judged(false, nil)
	// Where a cluster was lost and is back, it may have kept the job as it was.
	admitted(time.Now().Add(-clusterTells))
	judged(true, done)
	admitted(time.Now())
	stored.Status.Conditions[0].LastTransitionTime = metav1.NewTime(time.Now().Add(time.Minute))
	judged(true, done)
}

// Once Kueue has reserved quota by a list of pods that are done, it lets nobody take any off it. The next cluster runs them
// again.
func TestQuotaGoesBackWithThePodsThatWereDone(t *testing.T) {
	for reason, queues := range map[string]bool{kueue.WorkloadEvictedByAdmissionCheck: false, kueue.WorkloadEvictedByPreemption: true} {
		stored, _ := suspendedJob()
		done := func(wl *kueue.Workload) { wl.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "node", Count: 1}} }
		r, _ := onStatuses(t, kit.Namespace("ns"), kit.With(stored, elsewhere), inttest.WorkloadOf(stored, giveQuota, kit.Is(kueue.WorkloadEvicted, reason), done))
		stop := func() error {
			_, err := jobOf(t, r, stored).Stop(t.Context(), r.deps.client, nil, jobframework.StopReasonWorkloadEvicted, "")
			return err
		}
		err := stop()
		expect.That(t, errors.Is(err, errOutdated), "The stop ended with %v", err)
		wl := theWorkload(t, r.deps.client)
		expect.That(t, !kueuelib.HasQuotaReservation(wl) && !kueuelib.IsAdmitted(wl) && wl.Status.Admission == nil && len(wl.Status.ReclaimablePods) == 0,
			"It has quota, or pods that are done: %s", expect.JSON(t, wl.Status))
		expect.Same(t, "It queues again at once", queues, apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadRequeued))
		expect.NoError(t, stop())
	}
}

// jobframework would finish a prebuilt Workload with another time limit, while pods run on its quota.
func TestPrebuiltWorkloadIsKeptWhilePodsAreLeft(t *testing.T) {
	stored, js := disagreeing(true, true, true, time.Now())
	kit.With(stored, prebuilt).Labels[kueueconstants.MaxExecTimeSecondsLabel] = "900"
	r, _ := newReconciler(t, stored, js, kit.ChildJob(js, "node", kit.Active(1)), inttest.WorkloadOf(stored, kit.Admitted, evicted))
	said := saidOf(r)
	expect.Must(look(t, r, jobKey))(t)
	expect.That(t, !strings.Contains(strings.Join(*said, ""), kueue.WorkloadFinished), "It is finished: %q", *said)
}

// jobframework takes the finalizer off the Workload of a job with another time limit, whatever runs on it.
func TestDeletedWorkloadIsKeptWhilePodsAreLeft(t *testing.T) {
	stored, js := disagreeing(true, true, true, time.Now())
	stored.Labels[kueueconstants.MaxExecTimeSecondsLabel] = "900"
	wl := inttest.WorkloadOf(stored, kit.Admitted, kit.Held, func(wl *kueue.Workload) { wl.DeletionTimestamp = new(metav1.Now()) })
	r, _ := newReconciler(t, stored, js, kit.ChildJob(js, "node", kit.Active(1)), wl)
	_, err := look(t, r, jobKey)
	expect.That(t, errors.Is(err, errStillActive), "The look ended with %v", err)
	expect.That(t, inttest.Exists(t, r.deps.client, wl), "The Workload is gone, and its quota, beside a pod")
}

var evicted = kit.Is(kueue.WorkloadEvicted, kueue.WorkloadEvictedByAdmissionCheck)

// What MultiKueue copies to a worker has to be the user's alone, at any time: an in-tree integration there adds an entry of the
// same name, and the API server takes no two. The in-tree integration of this cluster gave it one, and older releases the gate.
func TestJobOfAnotherClusterGetsNoEntry(t *testing.T) {
	expect.Rows(t, map[string]func(*trainjob.TrainJob){
		"of this release":               func(*trainjob.TrainJob) {},
		"with the gate of an older one": func(job *trainjob.TrainJob) { place(t, job, patch.Gated("node")) },
		"of the in-tree integration":    func(job *trainjob.TrainJob) { place(t, job) },
	}, func(t *testing.T, change func(*trainjob.TrainJob)) {
		stored, _ := suspendedJob()
		r, _ := newReconciler(t, kit.With(stored, elsewhere, change))
		for _, step := range []struct {
			what      string
			job       func(*trainjob.TrainJob)
			wl        func(*kueue.Workload)
			suspended bool
		}{
			{what: "it waits", suspended: true},
			{what: "its user resumes it", job: func(job *trainjob.TrainJob) { job.Spec.Suspend = new(false) }, suspended: true},
			{what: "it is admitted", wl: kit.All(giveQuota, func(wl *kueue.Workload) { wl.Status.ClusterName = new("west") })},
			{what: "it runs"},
			{what: "its cluster is lost", wl: evicted, suspended: true},
		} {
			changeJob(t, r, step.job)
			if step.wl != nil {
				changeWorkload(t, r.deps.client, step.wl)
			}
			// jobframework fails to give the quota back: the fake API server has no status of Workloads to write.
			_, err := look(t, r, jobKey)
			expect.NoError(t, client.IgnoreNotFound(err))
			expect.Same(t, step.what+": it has an entry", false, r.deps.Field.Has(&storedJob(t, r).Spec))
			expect.Same(t, step.what+": it is suspended", step.suspended, storedJob(t, r).Suspended())
		}
	})
}

// MultiKueue deletes Workload and TrainJob of a run, and sends the same job again at once. A copy that waits asks the API
// server for pods of the former run as long as there are some, once when there are none, and again when something could
// make some.
func TestJobSentAgainLooksOnceForThePodsOfItsFormerRun(t *testing.T) {
	stored, js := suspendedJob()
	podOf := func(jobSet string) *corev1.Pod {
		return inttest.PodOf("ns", "job", func(pod *corev1.Pod) { pod.Labels[jobsetapi.JobSetUIDKey] = jobSet })
	}
	pod := podOf("former")
	former := inttest.JobSetOf(stored, true)
	former.UID = "former"
	late, strange := kit.ChildJob(former, "late"), kit.ChildJob(former, "strange")
	late.Spec.Template.Labels, strange.OwnerReferences = map[string]string{"kueue.x-k8s.io/podset": "node"}, nil
	r, _ := newReconciler(t, stored, js, pod)
	asked := 0
	r.deps.live = kit.Lists(r.deps.live, func(client.ObjectList) error { asked++; return nil })
	for _, step := range []struct {
		what   string
		change func() error
		done   bool
		asks   int
	}{
		{what: "of a job of this cluster, without quota"},
		{what: "with a pod", change: func() error { stored.Labels[kueue.MultiKueueOriginLabel] = "manager"; return nil }, done: true, asks: 1},
		{what: "still with a pod", done: true, asks: 1},
		{what: "when it is gone", change: func() error { return r.deps.client.Delete(t.Context(), pod) }, asks: 1},
		{what: "after that"},
		{what: "with a Job that somebody labels", change: func() error { return r.deps.client.Create(t.Context(), strange) }},
		{what: "with a Job of the former run", change: func() error { return r.deps.client.Create(t.Context(), late) }, asks: 1},
		{what: "when that is gone", change: func() error { return r.deps.client.Delete(t.Context(), late) }},
		{what: "when it is sent once more", change: func() error { stored.UID = "uid-2"; return nil }, asks: 1},
		{what: "with a pod of its own", change: func() error {
			r.deps.records.Delete(jobKey)
			stored.UID = "uid"
			return r.deps.client.Create(t.Context(), podOf("js"))
		}, asks: 1},
	} {
		if step.change != nil {
			expect.NoError(t, step.change())
		}
		asked = 0
		o := awaitPodsOfFormer(t.Context(), jobOf(t, r, stored))
		expect.That(t, o.err == nil && o.done == step.done, "awaitPodsOfFormer() %s = %+v", step.what, o)
		expect.Same(t, "Unexpected number of lists "+step.what, step.asks, asked)
	}
	r.deps.records.Delete(jobKey)
	expect.Same(t, "Unexpected number of things that are remembered of a TrainJob that is gone", 0, len(known(r.deps.records)))
}

// Kueue looks at a Workload once; before a worker cluster is connected, that was for nothing.
func TestJobThatNoClusterIsAskedForIsLookedAtAgain(t *testing.T) {
	reserved := func(ago, asked time.Duration, checks ...kueue.CheckState) func(*kueue.Workload) {
		return func(wl *kueue.Workload) {
			kit.Is(kueue.WorkloadQuotaReserved, "")(wl)
			wl.Status.Conditions[0].LastTransitionTime = metav1.NewTime(time.Now().Add(-ago))
			for i, check := range checks {
				wl.Status.AdmissionChecks = append(wl.Status.AdmissionChecks, kueue.AdmissionCheckState{
					Name: kueue.AdmissionCheckReference(fmt.Sprint(i)), State: check})
			}
			if asked != 0 {
				wl.Annotations = map[string]string{askedAgainAnnotation: time.Now().Add(-asked).Format(time.RFC3339)}
			}
		}
	}
	const pending, ready = kueue.CheckStatePending, kueue.CheckStateReady
	type row struct {
		workload func(*kueue.Workload)
		// asks is whether the Workload changes, again when the job is looked at again, in minutes.
		asks  bool
		again float64
	}
	expect.Rows(t, map[string]row{
		"a moment ago":                       {workload: reserved(30*time.Second, 0, pending), again: 0.5},
		"two minutes ago":                    {workload: reserved(2*time.Minute, 0, ready, pending), asks: true, again: 1},
		"asked again a moment ago":           {workload: reserved(5*time.Minute, time.Minute, pending), again: 3},
		"asked again, and as long ago":       {workload: reserved(5*time.Minute, 3*time.Minute, pending), asks: true, again: 1},
		"asked again in hours":               {workload: reserved(5*time.Hour, 11*time.Minute, pending), asks: true, again: 1},
		"asked again for a former dispatch":  {workload: reserved(2*time.Minute, 5*time.Minute, pending), asks: true, again: 1},
		"asked again by a clock of tomorrow": {workload: reserved(2*time.Minute, -24*time.Hour, pending), asks: true, again: 1},
		"another check has not answered":     {workload: reserved(2*time.Minute, 0, pending, pending)},
		"a check has it wait":                {workload: reserved(2*time.Minute, 0, kueue.CheckStateRetry, pending)},
		"no check has to answer":             {workload: reserved(2*time.Minute, 0, ready)},
		"a cluster is asked":                 {workload: kit.All(reserved(2*time.Minute, 0, pending), func(wl *kueue.Workload) { wl.Status.NominatedClusterNames = []string{"west"} })},
		"a cluster has it":                   {workload: kit.All(reserved(2*time.Minute, 0, pending), func(wl *kueue.Workload) { wl.Status.ClusterName = new("west") })},
		"it is evicted":                      {workload: kit.All(reserved(2*time.Minute, 0, pending), evicted)},
		"it is deactivated":                  {workload: kit.All(reserved(2*time.Minute, 0, pending), kit.Deactivated)},
		"it has no quota":                    {workload: func(*kueue.Workload) {}},
	}, func(t *testing.T, tc row) {
		r, j, before := dispatchedOn(t, tc.workload)
		got := ensureDispatched(t.Context(), j)
		expect.NoError(t, got.err)
		expect.Same(t, "Unexpected minutes after which it looks again", tc.again, math.Round(got.again.Minutes()*10)/10)
		wl := theWorkload(t, r.deps.client)
		expect.Same(t, "Kueue looks again", tc.asks, wl.Annotations[askedAgainAnnotation] != before.Annotations[askedAgainAnnotation])
	})
}

// An integration in a worker may take a job for gone that MultiKueue has taken from there.
func TestJobThatWasTakenForGoneQueuesAgain(t *testing.T) {
	type row struct {
		reason   string
		age      time.Duration
		prebuilt bool
		inactive bool
		want     bool
	}
	expect.Rows(t, map[string]row{
		"it has lost its Workload":            {reason: kueue.WorkloadFinishedReasonOwnerNotFound, age: time.Hour, want: true},
		"it has just lost one":                {reason: kueue.WorkloadFinishedReasonOwnerNotFound},
		"it has lost one that somebody made":  {reason: kueue.WorkloadFinishedReasonOwnerNotFound, age: time.Hour, prebuilt: true},
		"somebody deactivated it since":       {reason: kueue.WorkloadFinishedReasonOwnerNotFound, age: time.Hour, inactive: true},
		"its Workload says that it succeeded": {reason: kueue.WorkloadFinishedReasonSucceeded, age: time.Hour},
	}, func(t *testing.T, tc row) {
		r, j, wl := dispatchedOn(t, func(wl *kueue.Workload) {
			wl.CreationTimestamp = metav1.NewTime(time.Now().Add(-tc.age))
			wl.Spec.Active = new(!tc.inactive)
			kit.Is(kueue.WorkloadFinished, tc.reason)(wl)
		})
		if tc.prebuilt {
			j.Labels = map[string]string{kueueconstants.PrebuiltWorkloadLabel: wl.Name}
		}
		got := ensureDispatched(t.Context(), j)
		expect.Need(t, got.err == nil && (got.again > 0) == (tc.age == 0), "ensureDispatched() = %+v", got)
		expect.Same(t, "The Workload is gone", tc.want, !inttest.Exists(t, r.deps.client, wl))
	})
}

func dispatchedOn(t *testing.T, change func(*kueue.Workload)) (*reconciler, *job, *kueue.Workload) {
	t.Helper()
	stored, _ := suspendedJob()
	wl := inttest.WorkloadOf(stored, change)
	r, _ := newReconciler(t, wl)
	return r, jobOf(t, r, kit.With(stored, elsewhere)), wl
}

// copyOf makes the Workload of a TrainJob "llm" that MultiKueue made, with quota.
func copyOf(finalizers ...string) *kueue.Workload {
	wl := inttest.AdmittedOf("a", kit.Copied, kit.Assigned("gpus", "h100"))
	wl.UID, wl.Finalizers = "wl", finalizers
	return wl
}

func changed(change func(*kueue.Workload)) *kueue.Workload {
	return kit.With(copyOf(placeholder.Finalizer), change)
}

func gpusQueue() *kueue.ClusterQueue {
	return &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "gpus", UID: "cq"}}
}

// podLeft is a pod of TrainJob "llm" that has a node.
func podLeft() *corev1.Pod {
	return inttest.PodOf("team", "llm", func(pod *corev1.Pod) { pod.Labels[jobsetapi.JobSetUIDKey] = "run" })
}

// remainderOf is what podLeft is charged by.
func remainderOf(wl *kueue.Workload) *kueue.Workload {
	return placeholder.Of(wl, gpusQueue(), "llm", []corev1.Pod{*podLeft()})
}

// worker is what the manager of a worker cluster sees of TrainJob team/llm.
type worker struct {
	client.Client
	*reconciler
}

func newWorker(t *testing.T, objects ...client.Object) *worker {
	t.Helper()
	r, _ := onStatuses(t, append(objects, gpusQueue())...)
	return &worker{Client: r.deps.client, reconciler: r}
}

// delete deletes an object, and leaves ours as it is.
func (w *worker) delete(t *testing.T, obj client.Object) {
	t.Helper()
	expect.NoError(t, w.Delete(t.Context(), obj.DeepCopyObject().(client.Object)))
}

// look has the manager look at the Workloads of the job once, and returns whether it comes again.
func (w *worker) look(t *testing.T) bool {
	t.Helper()
	key := client.ObjectKeyFromObject(inttest.Job("a"))
	j := expect.Must(w.deps.observe(t.Context(), key))(t)
	released := releaseCopies(t.Context(), j)
	expect.NoError(t, released.err)
	return released.again > 0
}

// get reads a Workload, nil if it is gone.
func (w *worker) get(t *testing.T, name string) *kueue.Workload {
	t.Helper()
	wl := &kueue.Workload{}
	err := w.Get(t.Context(), client.ObjectKey{Namespace: "team", Name: name}, wl)
	if apierrors.IsNotFound(err) {
		return nil
	}
	expect.NoError(t, err)
	return wl
}

func TestReleaseCopies(t *testing.T) {
	const kueues, ours = kueue.ResourceInUseFinalizerName, placeholder.Finalizer
	trainJob := inttest.Job("a")
	local := copyOf(kueues)
	local.Labels = nil
	relabelled := copyOf(kueues, ours)
	relabelled.Labels = nil
	uncharged := remainderOf(copyOf())
	uncharged.Name = "remainder-former"
	charged := uncharged.DeepCopy()
	charged.Status = placeholder.Charge(copyOf())
	others := kit.With(remainderOf(copyOf()), func(rest *kueue.Workload) { rest.Status, rest.Labels[placeholder.Label] = charged.Status, "other" })
	idle := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "remainder-wl"}}
	planted := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "remainder-wl"}, Status: charged.Status}
	plain := inttest.PodOf("team", "llm")
	finished := kit.Is(kueue.WorkloadFinished, "Succeeded")
	unknown := func(wl *kueue.Workload) { wl.Status.Admission = nil }
	elsewhere := func(wl *kueue.Workload) { wl.Status.Admission.ClusterQueue = "gone" }
	type row struct {
		wl    *kueue.Workload
		there []client.Object
		// kept is whether the Workload is there after the first look, charged whether a remainder
		// has been made.
		kept, charged bool
		// remains is set where one that others made stays.
		remains bool
	}
	expect.Rows(t, map[string]row{
		"without a pod":                            {wl: copyOf(ours)},
		"without a pod, and MultiKueue was late":   {wl: copyOf(kueues, ours)},
		"with a pod":                               {wl: copyOf(ours), there: []client.Object{podLeft()}, kept: true, charged: true},
		"with a pod, and labels that others took":  {wl: relabelled, there: []client.Object{podLeft()}, kept: true, charged: true},
		"with a pod of a former run":               {wl: copyOf(ours), there: []client.Object{podLeft(), charged}},
		"with a pod that another is to be charged": {wl: copyOf(ours), there: []client.Object{podLeft(), uncharged}, kept: true, charged: true},
		"with a pod, and one that others made":     {wl: copyOf(ours), there: []client.Object{podLeft(), planted}, kept: true, charged: true},
		"with a pod, and one of another job":       {wl: copyOf(ours), there: []client.Object{podLeft(), others}, kept: true, charged: true},
		"without quota, and one that others made":  {wl: changed(kit.Deactivated), there: []client.Object{idle}, remains: true},
		// Kueue deactivates what its manager cluster evicts, at any moment.
		"without quota, and with one that has none": {wl: changed(kit.Deactivated), there: []client.Object{podLeft(), remainderOf(copyOf())}},
		"without quota, and with one that has": {wl: changed(kit.Deactivated), remains: true,
			there: []client.Object{podLeft(), kit.With(remainderOf(copyOf()), func(rest *kueue.Workload) { rest.Status = charged.Status })}},
		"with a pod, and Kueue has its quota back": {wl: changed(kit.Deactivated), there: []client.Object{podLeft()}},
		"with a pod that no JobSet made":           {wl: copyOf(ours), there: []client.Object{plain}},
		"with a pod, and charged to nobody":        {wl: changed(unknown), there: []client.Object{podLeft()}},
		"with a pod, and its ClusterQueue is gone": {wl: changed(elsewhere), there: []client.Object{podLeft()}},
		"finished, with a pod":                     {wl: changed(finished), there: []client.Object{podLeft()}},
		"of a job that stops here":                 {wl: copyOf(kueues, ours), there: []client.Object{trainJob, podLeft()}, kept: true},
		"of a job that is deleted, and stays":      {wl: copyOf(kueues, ours), there: []client.Object{kit.With(inttest.Job("a"), isDeleted), podLeft()}, kept: true, charged: true},
		"of a former job of the name":              {wl: copyOf(kueues, ours), there: []client.Object{inttest.Job("next"), podLeft()}, kept: true, charged: true},
		"of a job that MultiKueue left":            {wl: copyOf(ours), there: []client.Object{trainJob, podLeft()}, kept: true, charged: true},
		"of a job of this cluster":                 {wl: local, there: []client.Object{podLeft()}, kept: true},
	}, func(t *testing.T, tc row) {
		w := newWorker(t, append([]client.Object{tc.wl.DeepCopy()}, tc.there...)...)
		expect.Need(t, !w.look(t) && w.get(t, tc.wl.Name) != nil, "The Workload is touched before it is deleted")
		w.delete(t, tc.wl)
		again := w.look(t)
		expect.Same(t, "The Workload is there", tc.kept, w.get(t, tc.wl.Name) != nil)
		rest := w.get(t, "remainder-wl")
		expect.That(t, (rest != nil) == (tc.charged || tc.remains) && again == tc.charged,
			"There is a remainder: %t, and the manager comes again: %t; want %t", rest != nil, again, tc.charged)
	})
}

// Whatever the phase of the job, and whether there is one: MultiKueue waits for it.
func TestReconcileLetsCopiesGo(t *testing.T) {
	wl := copyOf(placeholder.Finalizer)
	w := newWorker(t, wl.DeepCopy(), inttest.Job("a"))
	w.delete(t, wl)
	expect.Must(look(t, w.reconciler, client.ObjectKeyFromObject(inttest.Job("a"))))(t)
	expect.That(t, w.get(t, wl.Name) == nil, "The Workload stays")
}

// Kueue writes that it does not admit a remainder over what that is charged.
func TestRemainderIsChargedOnceKueueHasJudgedIt(t *testing.T) {
	wl := copyOf(placeholder.Finalizer)
	w := newWorker(t, wl.DeepCopy(), podLeft())
	w.delete(t, wl)
	for _, reason := range []string{"", kueue.WorkloadQuotaReservedReasonPendingEvaluation, ""} {
		expect.Need(t, w.look(t) && w.get(t, "remainder-wl").Status.Admission == nil, "The remainder is charged before Kueue has looked at it")
		rest := w.get(t, "remainder-wl")
		rest.CreationTimestamp = metav1.Now()
		expect.NoError(t, w.Update(t.Context(), rest))
		if reason != "" {
			kit.Isnt(kueue.WorkloadQuotaReserved, reason)(rest)
			expect.NoError(t, w.Status().Update(t.Context(), rest))
		}
	}
	rest := w.get(t, "remainder-wl")
	kit.Isnt(kueue.WorkloadQuotaReserved, "Pending")(rest)
	expect.NoError(t, w.Status().Update(t.Context(), rest))

	expect.That(t, !w.look(t) && w.get(t, wl.Name) == nil, "The Workload stays though its remainder is charged")
	if rest = w.get(t, "remainder-wl"); !kueuelib.HasQuotaReservation(rest) {
		t.Error("The remainder has no quota")
	}
	expect.Same(t, "What the remainder is charged differs", wl.Status.Admission, rest.Status.Admission)
}

// A namespace that is deleted takes no new objects, and the pods in it may take their time.
func TestWorkloadStaysWhereItsRemainderIsRefused(t *testing.T) {
	expect.Rows(t, map[string]error{
		"forbidden": kit.Forbidden("workloads"), "not valid": apierrors.NewInvalid(kueue.SchemeGroupVersion.WithKind("Workload").GroupKind(), "remainder-wl", nil),
	}, func(t *testing.T, refusal error) {
		wl := copyOf(placeholder.Finalizer)
		resumed := inttest.JobSetOf(inttest.Job("a"), false)
		w := newWorker(t, wl.DeepCopy(), podLeft(), resumed)
		w.deps.client = kit.Writes(w.deps.client, func(w kit.Write) error {
			if w.Verb == "create" {
				return refusal
			}
			return nil
		})
		w.delete(t, wl)
		expect.That(t, w.look(t) && w.get(t, wl.Name) != nil, "The Workload goes before its pods, or nobody looks at it again")
		w.delete(t, podLeft())
		expect.That(t, w.look(t) && w.get(t, wl.Name) != nil, "The Workload goes while its JobSet may get pods")
		w.delete(t, resumed)
		expect.That(t, !w.look(t) && w.get(t, wl.Name) == nil, "The Workload stays when its pods are gone")
	})
}

// In a queue whose head waits, Kueue does not look at what comes after it.
func TestRemainderThatKueueDoesNotJudgeIsChargedAndSeenToStay(t *testing.T) {
	for clock, ago := range map[string]time.Duration{"like ours": judgedWithin + time.Second, "ahead of ours": -time.Minute} {
		wl := copyOf(placeholder.Finalizer)
		rest := remainderOf(wl)
		rest.CreationTimestamp = metav1.NewTime(time.Now().Add(-ago))
		w := newWorker(t, wl.DeepCopy(), podLeft(), rest)
		w.delete(t, wl)
		expect.That(t, w.look(t) && w.get(t, wl.Name) != nil && kueuelib.HasQuotaReservation(w.get(t, rest.Name)),
			"By a clock %s, the remainder is not charged, or the Workload goes before it is seen to be", clock)
		expect.That(t, !w.look(t) && w.get(t, wl.Name) == nil, "By a clock %s, the Workload stays though its remainder is charged", clock)
	}
}

func TestRemainderGoesWithItsLastPod(t *testing.T) {
	made := func(change ...func(*kueue.Workload)) *kueue.Workload {
		rest := remainderOf(copyOf())
		rest.Status, rest.CreationTimestamp = placeholder.Charge(copyOf()), metav1.NewTime(time.Now().Add(-time.Hour))
		return kit.With(rest, change...)
	}
	uncharged := func(rest *kueue.Workload) { rest.Status = kueue.WorkloadStatus{} }
	ofPrebuilt := placeholder.Of(kit.With(copyOf(), func(wl *kueue.Workload) { wl.Name = "llm-quota" }), gpusQueue(), "llm", []corev1.Pod{*podLeft()})
	ofPrebuilt.Status = placeholder.Charge(copyOf())
	admittedBy := func(workload string) *corev1.Pod {
		return kit.With(podLeft(), func(pod *corev1.Pod) { pod.Annotations = map[string]string{kueue.WorkloadAnnotation: workload} })
	}
	ended := podLeft()
	ended.Status.Phase, ended.Finalizers = corev1.PodFailed, []string{"example.com/mine"}
	ofAnother := podLeft()
	ofAnother.Labels[jobsetapi.JobSetUIDKey] = "other"
	type row struct {
		rest  *kueue.Workload
		there []client.Object
		// kept is whether it stays, and again whether the manager looks at it again.
		kept, again bool
	}
	expect.Rows(t, map[string]row{
		"while a pod is left":                           {rest: made(), there: []client.Object{podLeft()}, kept: true, again: true},
		"without a pod":                                 {rest: made()},
		"with a pod that somebody keeps":                {rest: made(), there: []client.Object{ended}},
		"with a pod of another run":                     {rest: made(), there: []client.Object{ofAnother}},
		"that nobody came to charge":                    {rest: made(uncharged), there: []client.Object{podLeft()}},
		"that is about to be charged":                   {rest: made(uncharged, func(rest *kueue.Workload) { rest.CreationTimestamp = metav1.Now() }), there: []client.Object{podLeft()}, kept: true, again: true},
		"while a pod of a Workload of any name is left": {rest: ofPrebuilt, there: []client.Object{admittedBy("llm-quota")}, kept: true, again: true},
		"with a pod that somebody else queued":          {rest: made(), there: []client.Object{admittedBy("llm-quota")}},
		"which does not say what pods it is for":        {rest: made(func(rest *kueue.Workload) { rest.Annotations = nil }), kept: true},
	}, func(t *testing.T, tc row) {
		w := newWorker(t, append(tc.there, tc.rest)...)
		result := expect.Must((&remainders{deps: w.deps}).Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(tc.rest)}))(t)
		kept := w.get(t, tc.rest.Name) != nil
		expect.That(t, kept == tc.kept && (result.RequeueAfter > 0) == tc.again,
			"The remainder is there: %t, want %t; the manager comes again in %s, want that: %t", kept, tc.kept, result.RequeueAfter, tc.again)
	})
}

// MultiKueue takes a job for running while its Workload is there.
func TestWorkloadGoesBeforeADeletedJobThatStays(t *testing.T) {
	type row struct {
		wl    *kueue.Workload
		there []client.Object
		// want is whether the Workload is deleted, again whether the manager comes again.
		want, again bool
	}
	expect.Rows(t, map[string]row{
		"when its pods are gone":                      {wl: copyOf(placeholder.Finalizer), want: true},
		"not while one is left":                       {wl: copyOf(placeholder.Finalizer), there: []client.Object{podLeft()}, again: true},
		"not before MultiKueue has read how it ended": {wl: changed(kit.Is(kueue.WorkloadFinished, "Succeeded"))},
	}, func(t *testing.T, tc row) {
		stays := kit.With(inttest.Job("a"), isDeleted)
		stays.Spec.Suspend = new(true)
		w := newWorker(t, append(tc.there, stays, tc.wl)...)
		result := expect.Must(look(t, w.reconciler, client.ObjectKeyFromObject(stays)))(t)
		deleted := !w.get(t, copyOf().Name).DeletionTimestamp.IsZero()
		expect.That(t, deleted == tc.want && (result.RequeueAfter > 0) == tc.again,
			"The Workload is deleted: %t, and the manager comes again in %s; want it deleted: %t", deleted, result.RequeueAfter, tc.want)
	})
}

// MultiKueue takes a Workload that is finished for the end of the job.
func TestCopyOfDeletedTrainJobIsNotFinished(t *testing.T) {
	for wl, want := range map[*kueue.Workload]bool{
		copyOf(kueue.ResourceInUseFinalizerName, placeholder.Finalizer): false, inttest.WorkloadOf(inttest.Job("a")): true,
	} {
		w := newWorker(t, wl)
		expect.Must(look(t, w.reconciler, client.ObjectKeyFromObject(inttest.Job("a"))))(t)
		expect.Same(t, "The Workload is finished", want, kueuelib.IsFinished(w.get(t, wl.Name)))
	}
}
