// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/podsets"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// dispatched returns a reconciler for a TrainJob that MultiKueue runs in another cluster.
func dispatched(t *testing.T, change func(*trainjob.TrainJob)) *reconciler {
	t.Helper()
	stored, _ := suspendedJob()
	stored.Spec.ManagedBy = new(kueue.MultiKueueControllerName)
	kit.With(stored, change)
	r, _ := newReconciler(t, stored)
	r.deps.Defaults = podsets.FixedDefaults(servedDefaults(t))
	return r
}

// reconciled returns the TrainJob after a reconcile. jobframework fails to give the quota back
// afterwards: the fake API server has no status of Workloads to write.
func reconciled(t *testing.T, r *reconciler) *trainjob.TrainJob {
	t.Helper()
	_, err := look(t, r, jobKey)
	expect.NoError(t, client.IgnoreNotFound(err))
	return storedJob(t, r)
}

// admittedOn has quota given to a Workload, and MultiKueue say where it runs.
func admittedOn(cluster string) func(*kueue.Workload) {
	return func(wl *kueue.Workload) {
		giveQuota(wl)
		wl.Status.ClusterName = &cluster
	}
}

// What runs in another cluster runs by the runtime that is there.
func TestRuntimeThatIsGoneDoesNotDisturbAJobElsewhere(t *testing.T) {
	stored, _ := suspendedJob()
	stored.Spec.ManagedBy, stored.Spec.RuntimeRef.Name = new(kueue.MultiKueueControllerName), "gone"
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

// jobframework would finish a prebuilt Workload with another time limit, while pods run on its quota.
func TestPrebuiltWorkloadIsKeptWhilePodsAreLeft(t *testing.T) {
	stored, js := disagreeing(true, true, true, time.Now())
	wl := inttest.WorkloadOf(stored, kit.Admitted, evicted)
	stored.Labels[kueueconstants.PrebuiltWorkloadLabel], stored.Labels[kueueconstants.MaxExecTimeSecondsLabel] = wl.Name, "900"
	r, _ := newReconciler(t, stored, js, kit.ChildJob(js, "node", kit.Active(1)), wl)
	var written []string
	r.deps.client = statusWrites(r.deps.client, func(w kit.Write) { written = append(written, string(expect.Must(w.Patch.Data(w.Object))(t))) })
	_, err := look(t, r, jobKey)
	expect.NoError(t, err)
	expect.That(t, !strings.Contains(strings.Join(written, ""), kueue.WorkloadFinished), "It is finished: %q", written)
}

var evicted = kit.Is(kueue.WorkloadEvicted, kueue.WorkloadEvictedByAdmissionCheck)

// What MultiKueue copies to a worker has to be the user's alone, at any time. Releases before this one gave it the gate,
// which does no harm there.
func TestJobOfAnotherClusterGetsNoEntry(t *testing.T) {
	for name, change := range map[string]func(*trainjob.TrainJob){
		"of this release": nil, "with the gate of an older one": func(job *trainjob.TrainJob) { place(t, job, patch.Gated("node")) },
	} {
		t.Run(name, func(t *testing.T) {
			r := dispatched(t, change)
			patches := expect.JSON(t, storedJob(t, r).Spec.RuntimePatches)
			changed := func(change func(*kueue.Workload)) func() { return func() { changeWorkload(t, r.deps.client, change) } }
			for _, step := range []struct {
				what      string
				change    func()
				suspended bool
			}{
				{what: "it waits", change: func() {}, suspended: true},
				{what: "its user resumes it", change: func() { changeJob(t, r, func(job *trainjob.TrainJob) { job.Spec.Suspend = new(false) }) }, suspended: true},
				{what: "it is admitted", change: changed(admittedOn("west"))},
				{what: "it runs", change: func() {}},
				{what: "its cluster is lost", change: changed(evicted), suspended: true},
			} {
				step.change()
				stored := reconciled(t, r)
				expect.Same(t, step.what+": unexpected patches", patches, expect.JSON(t, stored.Spec.RuntimePatches))
				expect.Same(t, step.what+": it is suspended", step.suspended, stored.Suspended())
			}
		})
	}
}

func TestDispatchIsTold(t *testing.T) {
	cases := map[string]struct {
		cluster *string
		want    string
	}{
		"to a cluster that MultiKueue names": {cluster: new("west"), want: "Admitted from queue team by ClusterQueue gpus, and runs in cluster west"},
		"to one that it does not":            {want: "Admitted from queue team by ClusterQueue gpus, and runs in another cluster"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			wl := &kueue.Workload{Spec: kueue.WorkloadSpec{QueueName: "team"},
				Status: kueue.WorkloadStatus{ClusterName: tc.cluster, Admission: &kueue.Admission{ClusterQueue: "gpus"}}}
			expect.Same(t, "Unexpected message", tc.want, dispatchedMessage(wl))
		})
	}
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
			r.deps.records.forget(jobKey)
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
	r.deps.records.forget(jobKey)
	expect.Same(t, "Unexpected number of things that are remembered of a TrainJob that is gone", 0, len(r.deps.records.byName))
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
	cases := map[string]struct {
		workload func(*kueue.Workload)
		// asks is whether the Workload changes, again when the job is looked at again, in minutes.
		asks  bool
		again float64
	}{
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
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r, j, before := dispatchedOn(t, tc.workload)
			got := ensureDispatched(t.Context(), j)
			expect.NoError(t, got.err)
			expect.Same(t, "Unexpected minutes after which it looks again", tc.again, math.Round(got.again.Minutes()*10)/10)
			wl := theWorkload(t, r.deps.client)
			expect.Same(t, "Kueue looks again", tc.asks, wl.Annotations[askedAgainAnnotation] != before.Annotations[askedAgainAnnotation])
		})
	}
}

// An integration in a worker may take a job for gone that MultiKueue has taken from there.
func TestJobThatWasTakenForGoneQueuesAgain(t *testing.T) {
	cases := map[string]struct {
		reason   string
		age      time.Duration
		prebuilt bool
		inactive bool
		want     bool
	}{
		"it has lost its Workload":            {reason: kueue.WorkloadFinishedReasonOwnerNotFound, age: time.Hour, want: true},
		"it has just lost one":                {reason: kueue.WorkloadFinishedReasonOwnerNotFound},
		"it has lost one that somebody made":  {reason: kueue.WorkloadFinishedReasonOwnerNotFound, age: time.Hour, prebuilt: true},
		"somebody deactivated it since":       {reason: kueue.WorkloadFinishedReasonOwnerNotFound, age: time.Hour, inactive: true},
		"its Workload says that it succeeded": {reason: kueue.WorkloadFinishedReasonSucceeded, age: time.Hour},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
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
}

// dispatchedOn returns a job of MultiKueue with a Workload.
func dispatchedOn(t *testing.T, change func(*kueue.Workload)) (*reconciler, *job, *kueue.Workload) {
	t.Helper()
	stored, _ := suspendedJob()
	stored.Spec.ManagedBy = new(kueue.MultiKueueControllerName)
	wl := inttest.WorkloadOf(stored, change)
	r, _ := newReconciler(t, wl)
	return r, jobOf(t, r, stored), wl
}
