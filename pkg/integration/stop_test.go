// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"cmp"
	"context"
	"errors"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/constants"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobclient"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestLongStopIsTold(t *testing.T) {
	evicted := func(ago time.Duration) func(*kueue.Workload) {
		return kit.All(kit.Is(kueue.WorkloadEvicted, ""), since(ago))
	}
	cases := map[string]struct {
		stop func(*kueue.Workload)
		// deleted has the Workload deleted by a user, active is what JobSet reports, pods what its Job has.
		deleted      bool
		active, pods int32
		want         string
	}{
		"an evicted job with a pod":               {stop: evicted(time.Minute), active: 1, pods: 1, want: "Normal StillStopping Pods of the stopped run are still terminating"},
		"an evicted job that JobSet holds up":     {stop: evicted(time.Minute), active: 1, want: "Warning StillStopping no pod of the stopped run is left, but JobSet job"},
		"one that was evicted just now":           {stop: evicted(0), active: 1},
		"a deleted Workload that JobSet holds up": {deleted: true, active: 1, want: "Warning StillStopping no pod of the stopped run is left, but JobSet job"},
		"a deleted Workload with pods":            {deleted: true, active: 1, pods: 2, want: "Normal StillStopping Pods of the stopped run are still terminating"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			stored, js := disagreeing(true, true, true, time.Now().Add(-20*time.Second))
			js.Status.ReplicatedJobsStatus = []jobsetapi.ReplicatedJobStatus{{Name: "node", Active: tc.active}}
			child := kit.ChildJob(js, "node", kit.Active(tc.pods))
			child.Spec.Suspend = new(true)
			wl := inttest.WorkloadOf(stored, kit.Admitted, kit.Held, tc.stop)
			r, recorder := newReconciler(t, stored, js, child, wl)
			if tc.deleted {
				deletedLongAgo(t, r, wl)
			}
			result, err := r.Reconcile(t.Context(), jobRequest)
			expect.That(t, err == nil && (!tc.deleted && tc.want != "" || result.RequeueAfter != 0), "Reconcile returned %v, %v", result, err)
			wantTold(t, eventsSoFar(recorder, ""), tc.want)
		})
	}
}

// deletedLongAgo shows a Workload as one that was deleted a minute ago; the fake API
// server would stamp it with the time of now.
func deletedLongAgo(t *testing.T, r *reconciler, wl *kueue.Workload) {
	t.Helper()
	ago := metav1.NewTime(time.Now().Add(-time.Minute))
	r.deps.client = interceptor.NewClient(r.deps.client.(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			err := c.List(ctx, list, opts...)
			if workloads, ok := list.(*kueue.WorkloadList); ok {
				for i := range workloads.Items {
					workloads.Items[i].DeletionTimestamp = &ago
				}
			}
			return err
		},
	})
}

// Trainer's refusals for the pods of before are silent for a while only, and no quota hangs on them in the end: a JobSet that
// somebody keeps from being deleted reports pods for ever that are gone.
func TestQuotaGoesWithoutTheGateInTheEnd(t *testing.T) {
	for name, tc := range map[string]struct {
		began time.Time
		long  bool
	}{
		"Trainer may just not have heard of the last pod": {began: time.Now().Add(-10 * time.Second)},
		"it has not for a minute":                         {began: time.Now().Add(-time.Minute), long: true},
	} {
		t.Run(name, func(t *testing.T) {
			stored, _ := disagreeing(true, true, true, time.Now().Add(-time.Minute))
			lagging := func(wl *kueue.Workload) (*reconciler, *events.FakeRecorder) {
				r, recorder := newReconciler(t, stored.DeepCopy(), wl)
				r.deps.expectations = jobclient.NewExpectations(clocktesting.NewFakePassiveClock(tc.began))
				r.deps.client = kit.Writes(r.deps.client, func(kit.Write) error {
					return apierrors.NewForbidden(jobclient.Resource, "job", errors.New("the JobSet's ReplicatedJob node is still active"))
				})
				return r, recorder
			}
			r, recorder := lagging(inttest.WorkloadOf(stored))
			result, err := r.Reconcile(t.Context(), jobRequest)
			expect.That(t, (err != nil) == tc.long && (result.RequeueAfter == retrySlowly) != tc.long, "Reconcile returned %v, %v", result, err)
			expect.Same(t, "The user is told", tc.long, len(eventsSoFar(recorder, jobevents.ReasonRefused)) > 0)

			r, _ = lagging(inttest.WorkloadOf(stored, kit.Admitted))
			_, err = jobOf(t, r, stored).Stop(t.Context(), r.deps.client, nil, jobframework.StopReasonWorkloadEvicted, "")
			expect.That(t, (err == nil) == tc.long, "Stop returned %v", err)
		})
	}
}

// Trainer makes another JobSet of a job that is not suspended, for as long as somebody's finalizer
// keeps it.
func TestDeletedJobThatStaysIsSuspended(t *testing.T) {
	tests := map[string]struct {
		labels    map[string]string
		suspended bool
		change    func(*trainjob.TrainJob)
		quota     bool
		// want is whether it is suspended, writes how many requests that takes.
		want   bool
		writes int
	}{
		"one that runs":           {labels: queueLabel, quota: true, want: true, writes: 1},
		"one whose quota is gone": {labels: queueLabel, want: true, writes: 1},
		"one that waits":          {labels: queueLabel, suspended: true, want: true},
		"one of no queue":         {},
		"one that has ended":      {labels: queueLabel, change: ended(trainer.TrainJobComplete)},
		"one that MultiKueue has": {labels: queueLabel, change: func(t *trainjob.TrainJob) { t.Spec.ManagedBy = new(kueue.MultiKueueControllerName) }},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			stored, _ := disagreeing(tc.suspended, tc.suspended, tc.suspended, time.Now())
			stored.Labels, stored.Finalizers = tc.labels, []string{"example.com/mine"}
			kit.With(stored, tc.change)
			r, _ := newReconciler(t, stored)
			if tc.quota {
				expect.NoError(t, r.deps.client.Create(t.Context(), inttest.WorkloadOf(stored, kit.Admitted)))
			}
			expect.NoError(t, r.deps.client.Delete(t.Context(), stored))
			writes := 0
			r.deps.client = kit.Writes(r.deps.client, func(kit.Write) error { writes++; return nil })
			j := jobOf(t, r, storedJob(t, r))
			outcome := untilEnd(t.Context(), j, rulesOf(phaseDeleting).before)
			expect.NoError(t, outcome.err)
			expect.That(t, storedJob(t, r).Suspended() == tc.want && writes == tc.writes,
				"It is suspended: %t, after %d writes; want %t, %d", storedJob(t, r).Suspended(), writes, tc.want, tc.writes)
			// Trainer may be about to make a JobSet by what it saw before.
			expect.Same(t, "The quota is kept", tc.quota, outcome.done && outcome.again > 0)
		})
	}
}

// Kueue refuses pods of a TrainJob that is gone, until there is another one of its name.
func TestDeletedJobKeepsItsQuotaWhileItsJobSetMayGetPods(t *testing.T) {
	tests := map[string]struct {
		suspended bool
		// stopped is how long ago it was decided; 0: it was not.
		stopped time.Duration
		// kept is how long ago the job was deleted that a finalizer keeps; 0: it is gone.
		kept   time.Duration
		change func(*jobsetapi.JobSet)
		want   bool
	}{
		"its JobSet was resumed":                {stopped: time.Hour, want: true},
		"Trainer may have it in hand":           {suspended: true, stopped: time.Second, want: true},
		"nobody has stopped it yet":             {suspended: true, want: true},
		"a finalizer has kept the job for long": {suspended: true, kept: time.Hour},
		"a finalizer keeps the job":             {suspended: true, kept: time.Second, want: true},
		"its JobSet is suspended":               {suspended: true, stopped: time.Hour},
		"its JobSet has ended":                  {stopped: time.Hour, change: func(js *jobsetapi.JobSet) { js.Status.TerminalState = string(jobsetapi.JobSetFailed) }},
		"its JobSet is deleted":                 {stopped: time.Hour, change: func(js *jobsetapi.JobSet) { js.Finalizers = []string{metav1.FinalizerDeleteDependents} }},
		"the JobSet is that of another of it":   {stopped: time.Hour, change: func(js *jobsetapi.JobSet) { js.OwnerReferences[0].UID = "other" }},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			stored, js := disagreeing(tc.suspended, tc.suspended, tc.suspended, time.Now())
			wl := inttest.WorkloadOf(stored, kit.Admitted, since(time.Hour))
			if tc.stopped > 0 {
				evicted := kit.True(kueue.WorkloadEvicted, "")
				evicted.LastTransitionTime = metav1.NewTime(time.Now().Add(-tc.stopped))
				wl.Status.Conditions = append(wl.Status.Conditions, evicted)
			}
			kit.With(js, tc.change)
			r, _ := newReconciler(t, wl, js)
			if len(js.Finalizers) > 0 {
				expect.NoError(t, r.deps.client.Delete(t.Context(), js))
			}
			j := expect.Must(r.deps.observe(t.Context(), client.ObjectKeyFromObject(stored)))(t)
			if tc.kept > 0 {
				j.TrainJob.DeletionTimestamp = new(metav1.NewTime(time.Now().Add(-tc.kept)))
			}
			outcome := awaitPodsOfDeleted(t.Context(), j)
			expect.NoError(t, outcome.err)
			expect.Same(t, "The quota is kept", tc.want, outcome.done && outcome.again > 0)
		})
	}
}

// Trainer makes another JobSet of what it takes for ended only as long as there is one.
func TestWhatComesBackIsSuspendedWhenItIsDeleted(t *testing.T) {
	for name, tc := range map[string]struct {
		served trainjob.TrainerVersion
		ended  string
		// closed is for how long its namespace is being deleted, where Trainer may refuse to have it suspended.
		closed time.Duration
		want   bool
	}{
		"one that runs":                       {served: trainjob.Trainer23, want: true},
		"one whose namespace goes, just now":  {served: trainjob.Trainer23, closed: time.Second, want: true},
		"one whose namespace goes":            {served: trainjob.Trainer23, closed: time.Minute},
		"one that failed":                     {served: trainjob.Trainer23, ended: trainer.TrainJobFailed, want: true},
		"one that is complete":                {served: trainjob.Trainer23, ended: trainer.TrainJobComplete},
		"one that is complete in Trainer 2.1": {served: trainjob.Trainer21, ended: trainer.TrainJobComplete, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			stored, js := disagreeing(false, false, false, time.Now())
			stored.Finalizers = []string{"example.com/mine"}
			if tc.ended != "" {
				ended(tc.ended)(stored)
			}
			r, _ := newReconciler(t, stored, js)
			r.deps.Describer = r.deps.For(tc.served)
			expect.NoError(t, r.deps.client.Delete(t.Context(), stored))
			j := jobOf(t, r, storedJob(t, r))
			if tc.closed > 0 {
				j.view.NamespaceDeleted = time.Now().Add(-tc.closed)
			}
			expect.NoError(t, suspendDeleted(t.Context(), j).err)
			expect.Same(t, "It is suspended", tc.want, storedJob(t, r).Suspended())
		})
	}
}

func ended(condition string) func(*trainjob.TrainJob) {
	return func(t *trainjob.TrainJob) { t.Status.Conditions = append(t.Status.Conditions, kit.True(condition, "")) }
}

// Of the former job no pod may be there yet: its JobSet was resumed a moment before it was deleted and made again.
func TestFormerJobKeepsItsQuotaWhileItsJobSetMayGetPods(t *testing.T) {
	former, stored := inttest.Job("former"), inttest.Job("uid")
	former.Namespace, former.Name, stored.Namespace, stored.Name = jobKey.Namespace, jobKey.Name, jobKey.Namespace, jobKey.Name
	stored.Labels, stored.Spec.Suspend = queueLabel, new(true)
	resumed, suspended := inttest.JobSetOf(former, false), inttest.JobSetOf(former, true)
	runs := kit.ChildJob(resumed, "node", func(child *batchv1.Job) {
		child.Spec.Template.Labels = map[string]string{kueueconstants.PodSetLabel: "node"}
	})
	pod := inttest.PodOf(jobKey.Namespace, jobKey.Name)
	waits := inttest.JobSetOf(stored, true)
	next := []client.Object{inttest.WorkloadOf(stored, kit.Admitted), inttest.JobSetOf(stored, false)}
	for name, tc := range map[string]struct {
		// there is what there is beside the TrainJob and the former one's Workload, which was deleted a while ago.
		there   []client.Object
		deleted time.Duration
		want    bool
	}{
		"its JobSet was resumed":                     {there: []client.Object{resumed}, deleted: time.Hour, want: true},
		"Trainer may have it in hand":                {there: []client.Object{suspended}, deleted: time.Second, want: true},
		"its JobSet is suspended":                    {there: []client.Object{suspended}, deleted: time.Hour},
		"its JobSet is gone":                         {deleted: time.Second},
		"its JobSet is gone, and a Job of it is not": {there: []client.Object{runs}, deleted: time.Hour, want: true},
		"its JobSet is gone, and the next one runs":  {there: next, deleted: time.Hour},
		"all is gone but a pod":                      {there: []client.Object{pod}, deleted: time.Hour, want: true},
		"the same beside the next JobSet":            {there: []client.Object{pod, waits}, deleted: time.Hour, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := newReconciler(t, copied(append(tc.there, stored, inttest.WorkloadOf(former, kit.Admitted)))...)
			j := jobOf(t, r, stored)
			for _, wl := range j.view.Workloads {
				if metav1.IsControlledBy(wl, former) {
					wl.DeletionTimestamp = new(metav1.NewTime(time.Now().Add(-tc.deleted)))
				}
			}
			outcome := awaitPodsOfFormer(t.Context(), j)
			// Who has let the former Workload go looks again soon.
			expect.That(t, outcome.err == nil && outcome.done && (outcome.again == retrySoon) == !tc.want, "awaitPodsOfFormer() = %+v, want it to wait: %t", outcome, tc.want)
		})
	}
}

// jobframework lets go of what a former job left only for one that queues.
func TestFormerJobLosesItsQuotaWhateverTheNextOneIs(t *testing.T) {
	for name, change := range map[string]func(*trainjob.TrainJob){
		"it queues":               func(*trainjob.TrainJob) {},
		"it runs without a queue": func(next *trainjob.TrainJob) { next.Labels, next.Spec.Suspend = nil, new(false) },
		"it has ended":            ended(trainer.TrainJobComplete),
	} {
		t.Run(name, func(t *testing.T) {
			former, next := inttest.Job("former"), inttest.Job("uid")
			former.Namespace, former.Name, next.Namespace, next.Name = jobKey.Namespace, jobKey.Name, jobKey.Namespace, jobKey.Name
			next.Labels, next.Spec.Suspend = map[string]string{"kueue.x-k8s.io/queue-name": "q"}, new(true)
			change(next)
			wl := inttest.WorkloadOf(former, kit.Admitted)
			wl.Finalizers = []string{kueue.ResourceInUseFinalizerName}
			r, _ := newReconciler(t, wl, next, inttest.JobSetOf(next, next.Suspended()))
			expect.NoError(t, r.deps.client.Delete(t.Context(), wl))
			reconcileOnce(t, r)
			expect.That(t, !inttest.Exists(t, r.deps.client, wl), "The Workload of the former job keeps its quota")
		})
	}
}

// What has lost its quota keeps it until its pods are gone, whatever it lost it by. A Workload that is deleted tells
// nobody when its last pod was gone, whatever else its job is.
func TestReleases(t *testing.T) {
	tests := map[string]struct {
		wl      func(*kueue.Workload)
		job     func(*trainjob.TrainJob)
		deleted bool
		want    string
	}{
		"a job that runs":                         {},
		"one that has ended":                      {job: ended(trainer.TrainJobComplete), want: releasedFinished},
		"one that was evicted":                    {wl: kit.Is(kueue.WorkloadEvicted, kueue.WorkloadEvictedByPreemption), want: kueue.WorkloadEvictedByPreemption},
		"one that was deactivated":                {wl: kit.Deactivated, want: releasedDeactivated},
		"one that was sent elsewhere":             {wl: func(wl *kueue.Workload) { wl.Spec.QueueName = "former" }, want: releasedQueue},
		"one that got another time limit":         {wl: func(wl *kueue.Workload) { wl.Spec.MaximumExecutionTimeSeconds = new(int32(60)) }, want: releasedTimeLimit},
		"one whose Workload is deleted":           {deleted: true, want: releasedDeleted},
		"one that has ended, and that is deleted": {job: ended(trainer.TrainJobComplete), deleted: true, want: releasedFinished},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			stored, _ := disagreeing(false, false, false, time.Now())
			kit.With(stored, tc.job)
			wl := inttest.WorkloadOf(stored, kit.Admitted, kit.Held, tc.wl)
			r, _ := newReconciler(t, stored, wl)
			if tc.deleted {
				expect.NoError(t, r.deps.client.Delete(t.Context(), wl))
			}
			got := cmp.Or(releases(t.Context(), jobOf(t, r, stored)), &release{})
			expect.That(t, got.why == tc.want && got.deleted == tc.deleted, "It releases %+v, want %q, deleted: %t", got, tc.want, tc.deleted)
		})
	}
}

// Quota must not be given away because the API server does not answer.
func TestPodsThatCannotBeListedMayBeThere(t *testing.T) {
	stored, js := disagreeing(true, true, true, time.Now().Add(-time.Minute))
	r, _ := newReconciler(t, stored, js, inttest.WorkloadOf(stored, kit.Admitted, evicted))
	expect.That(t, !jobOf(t, r, stored).active(t.Context()), "A job without pods has some")
	r.deps.live = kit.Lists(r.deps.live, func(client.ObjectList) error { return errors.New("away") })
	expect.That(t, jobOf(t, r, stored).active(t.Context()), "A job whose pods cannot be listed has none")
}

func TestKeepsQuota(t *testing.T) {
	stored, _ := suspendedJob()
	quota := []client.Object{inttest.WorkloadOf(stored, kit.Admitted)}
	tests := map[string]struct {
		reason jobframework.StopReason
		there  []client.Object
		want   bool
	}{
		"its Workload is deleted":                 {reason: jobframework.StopReasonWorkloadDeleted, want: true},
		"no Workload matches, and one has quota":  {reason: jobframework.StopReasonNoMatchingWorkload, there: quota, want: true},
		"no Workload matches, and none has quota": {reason: jobframework.StopReasonNoMatchingWorkload},
		"it was not admitted":                     {reason: jobframework.StopReasonNotAdmitted, there: quota},
		"it was evicted, for which Kueue waits":   {reason: jobframework.StopReasonWorkloadEvicted, there: quota},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r, _ := newReconciler(t, copied(append(tc.there, stored))...)
			err := keepsQuota(jobOf(t, r, stored), tc.reason)
			expect.Same(t, "It keeps its quota", tc.want, errors.Is(err, errStillActive))
		})
	}
}
