// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/deactivation"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// waits is a job in a queue.
func waits(queue string, changes ...func(*view)) *view {
	v := &view{workload: &kueue.Workload{}, job: &trainjob.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "llm"}}}
	v.job.Spec.Suspend = ptr.To(true)
	v.job.Labels = map[string]string{kueueconstants.QueueLabel: queue}
	return kit.With(v, changes...)
}

func hasQuota(v *view) {
	v.workload.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue}}
}

func runs(v *view) {
	hasQuota(v)
	v.job.Spec.Suspend = nil
}

func deactivated(v *view) { v.workload.Spec.Active = ptr.To(false) }

func deactivatedByKueue(v *view) {
	deactivated(v)
	v.workload.Name = "wl"
	v.workload.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadEvicted, Status: metav1.ConditionTrue, Reason: "DeactivatedDueToMaximumExecutionTimeExceeded"}}
}

func toBeDeactivated(v *view) { deactivation.Mark(v.workload) }

func toBeDeactivatedByKueue(v *view) {
	v.workload.Status.Conditions = append(v.workload.Status.Conditions, metav1.Condition{Type: kueue.WorkloadDeactivationTarget, Status: metav1.ConditionTrue})
}

func unseen(v *view) { v.workload, v.unseen = nil, true }

func TestPlans(t *testing.T) {
	type row struct {
		plan func(*view) (change, error)
		view *view
		want change
		// err is part of the error.
		err string
	}
	expect.Rows(t, map[string]row{
		"hold a job that waits":             {plan: (*view).hold, view: waits("gpus"), want: change{queue: "gpus.held"}},
		"hold one that is held":             {plan: (*view).hold, view: waits("gpus.held"), err: "is held already"},
		"hold one that runs":                {plan: (*view).hold, view: waits("gpus", runs), err: "kubectl trainjob stop -n team llm"},
		"hold one that stops":               {plan: (*view).hold, view: waits("gpus.held", hasQuota), err: "is being stopped, and held then"},
		"hold one that is held and runs":    {plan: (*view).hold, view: waits("gpus.held", runs), err: "kubectl trainjob stop"},
		"hold one that has quota":           {plan: (*view).hold, view: waits("gpus", hasQuota), err: "kubectl trainjob stop"},
		"hold with a queue of a long name":  {plan: (*view).hold, view: waits(strings.Repeat("q", 60)), err: "too long"},
		"stop one that runs":                {plan: (*view).stop, view: waits("gpus", runs), want: change{queue: "gpus.held", suspend: true}},
		"stop one that is to start":         {plan: (*view).stop, view: waits("gpus", hasQuota), want: change{queue: "gpus.held", suspend: true}},
		"stop one that waits":               {plan: (*view).stop, view: waits("gpus"), want: change{queue: "gpus.held"}},
		"stop without a view of Workloads":  {plan: (*view).stop, view: waits("gpus", runs, unseen), want: change{queue: "gpus.held", suspend: true}},
		"stop one that stops":               {plan: (*view).stop, view: waits("gpus.held", hasQuota), err: "is stopped already"},
		"stop one that is held and runs":    {plan: (*view).stop, view: waits("gpus.held", runs), want: change{queue: "gpus.held", suspend: true}},
		"resume one that is held":           {plan: (*view).resume, view: waits("gpus.held"), want: change{queue: "gpus"}},
		"resume one that stops":             {plan: (*view).resume, view: waits("gpus.held", hasQuota), want: change{await: true}},
		"resume one that is held and runs":  {plan: (*view).resume, view: waits("gpus.held", runs), err: "kubectl trainjob stop -n team llm"},
		"resume without Workloads":          {plan: (*view).resume, view: waits("gpus.held", unseen), want: change{queue: "gpus"}},
		"resume one that is deactivated":    {plan: (*view).resume, view: waits("gpus", deactivated), want: change{activate: true}},
		"resume one that is both":           {plan: (*view).resume, view: waits("gpus.held", deactivated), want: change{queue: "gpus", activate: true}},
		"resume one that is evicted":        {plan: (*view).resume, view: waits("gpus", hasQuota, deactivated), want: change{await: true}},
		"resume one that is to be":          {plan: (*view).resume, view: waits("gpus", runs, toBeDeactivated), want: change{await: true}},
		"resume one that Kueue is to take":  {plan: (*view).resume, view: waits("gpus", runs, toBeDeactivatedByKueue), err: "delete workload"},
		"resume one that Kueue took out":    {plan: (*view).resume, view: waits("gpus", deactivatedByKueue), err: "delete workload wl"},
		"resume a held one that Kueue took": {plan: (*view).resume, view: waits("gpus.held", deactivatedByKueue), want: change{queue: "gpus"}},
		"resume a held one that it stops":   {plan: (*view).resume, view: waits("gpus.held", hasQuota, toBeDeactivatedByKueue), want: change{await: true}},
		"resume one that waits":             {plan: (*view).resume, view: waits("gpus"), err: "it waits"},
		"resume one that runs":              {plan: (*view).resume, view: waits("gpus", runs), err: "it has its quota"},
		"requeue one that runs":             {plan: (*view).requeue, view: waits("gpus", runs), want: change{queue: "gpus.held", suspend: true}},
		"requeue one that waits":            {plan: (*view).requeue, view: waits("gpus"), err: "waits in its queue already"},
		"requeue one that is deactivated":   {plan: (*view).requeue, view: waits("gpus", deactivated), err: "kubectl trainjob resume -n team llm"},
		"requeue one that is to be":         {plan: (*view).requeue, view: waits("gpus", runs, toBeDeactivated), err: "is deactivated, or about to be"},
		"requeue one that Kueue will take":  {plan: (*view).requeue, view: waits("gpus", runs, toBeDeactivatedByKueue), err: "Kueue itself deactivated"},
		"requeue one that Kueue took out":   {plan: (*view).requeue, view: waits("gpus", deactivatedByKueue), err: "delete workload wl"},
		"requeue one that is held":          {plan: (*view).requeue, view: waits("gpus.held"), err: "resume"},
		"requeue one that is held, runs":    {plan: (*view).requeue, view: waits("gpus.held", runs), want: change{queue: "gpus.held", suspend: true}},
		"requeue without Workloads":         {plan: (*view).requeue, view: waits("gpus", runs, unseen), err: "permission to list Workloads"},
	}, func(t *testing.T, tc row) {
		got, err := tc.plan(tc.view)
		expect.Same(t, "Unexpected change", tc.want, got, gocmp.AllowUnexported(change{}))
		expect.Says(t, err, tc.err)
	})
}

func TestMovable(t *testing.T) {
	expect.Rows(t, map[string]expect.Row[func(*view), string]{
		"one in a queue":               {In: func(*view) {}},
		"one that is deleted":          {In: func(v *view) { v.job.DeletionTimestamp = ptr.To(metav1.Now()) }, Want: "is being deleted"},
		"one without a queue":          {In: func(v *view) { v.job.Labels = nil }, Want: "set spec.suspend yourself"},
		"one of another cluster":       {In: func(v *view) { v.job.Spec.ManagedBy = ptr.To("kueue.x-k8s.io/multikueue") }, Want: "spec.managedBy"},
		"one with a prebuilt Workload": {In: func(v *view) { v.job.Labels[kueueconstants.PrebuiltWorkloadLabel] = "wl" }, Want: "the prebuilt Workload wl"},
		"one whose prebuilt Workload is in an annotation": {In: func(v *view) {
			v.job.Annotations = map[string]string{kueueconstants.PrebuiltWorkloadAnnotation: "wl"}
		}, Want: "the prebuilt Workload wl"},
		"one that MultiKueue sent": {In: func(v *view) {
			v.job.Labels[kueue.MultiKueueOriginLabel], v.workload.Labels = "far", map[string]string{kueue.MultiKueueOriginLabel: "far"}
		}, Want: "sent here by MultiKueue"},
		"one that only says so": {In: func(v *view) { v.job.Labels[kueue.MultiKueueOriginLabel] = "far" }},
		"one that has ended": {In: func(v *view) {
			v.job.Status.Conditions = []metav1.Condition{{Type: trainer.TrainJobFailed, Status: metav1.ConditionTrue}}
		}, Want: "has ended"},
	}, func(t *testing.T, tc expect.Row[func(*view), string]) {
		expect.Says(t, waits("gpus", tc.In).movable(), tc.Want)
	})
}

func TestToldBack(t *testing.T) {
	c := change{queue: "gpus"}
	expect.Same(t, "Unexpected words", "queued again in gpus", toldBack(waits("gpus.held"), c))
	got, want := toldBack(waits("gpus.held", unseen), c), "it may start again on the quota that it had"
	expect.That(t, strings.Contains(got, want), "Unexpected words %q, want %q in them", got, want)
}

// TestAwaitQuota has its answers one after the other, the last one again and again.
func TestAwaitQuota(t *testing.T) {
	workloads := schema.GroupResource{Resource: "workloads"}
	away := apierrors.NewServerTimeout(workloads, "get", 1)
	forbidden := apierrors.NewForbidden(workloads, "", nil)
	holds := errors.New("holds its quota")
	type row struct {
		answers []error
		says    string
		// settled is set where those that wait are left the time that they take.
		settled bool
	}
	expect.Rows(t, map[string]row{
		"given back":                          {answers: []error{nil}, settled: true},
		"given back later":                    {answers: []error{holds, holds, nil}, settled: true},
		"an API server that is away for once": {answers: []error{holds, away, nil}, settled: true},
		"rights that are gone":                {answers: []error{holds, forbidden}, says: "you may not get Workloads in namespace team"},
		"never given back":                    {answers: []error{holds}, says: "it still has its quota: context deadline exceeded"},
		"an API server that stays away":       {answers: []error{holds, away}, says: "whether it still has its quota is not known: The get operation"},
		"given back at the very end":          {answers: append(slices.Repeat([]error{holds}, 3), nil), settled: true},
	}, func(t *testing.T, tc row) {
		synctest.Test(t, func(t *testing.T) {
			before := waits("gpus", runs)
			before.workload.Namespace, before.workload.Name, before.workload.UID = "team", "wl", "wl"
			asked, answered := 0, time.Time{}
			c := kit.Fake(kit.Scheme(trainjob.AddToScheme)).WithInterceptorFuncs(kit.RefusingGet(func(obj client.Object, _ client.ObjectKey) error {
				answer := tc.answers[min(asked, len(tc.answers)-1)]
				asked, answered = asked+1, time.Now()
				switch {
				case errors.Is(answer, holds):
					before.workload.DeepCopyInto(obj.(*kueue.Workload))
					return kit.ErrAnswered
				case answer == nil:
					return apierrors.NewNotFound(workloads, "wl")
				}
				return answer
			})).Build()
			a := &actor{client: c, namespace: "team", timeout: 61 * time.Second}
			err := a.awaitQuota(t.Context(), before)
			expect.Says(t, err, tc.says)
			expect.Same(t, "Unexpected time after the last answer", tc.settled, time.Since(answered) == settle)
		})
	})
}

// TestDeactivatedMeanwhile has the Workload change when the job is stopped that is to queue again, by users who may not
// change Workloads.
func TestDeactivatedMeanwhile(t *testing.T) {
	type row struct {
		meanwhile func(*view)
		says      string
		code      int
	}
	expect.Rows(t, map[string]row{
		"nobody deactivates it":   {meanwhile: func(*view) {}},
		"somebody deactivates it": {meanwhile: deactivated, says: "the TrainJob was deactivated", code: exit.Unseen},
		"Kueue deactivates it":    {meanwhile: deactivatedByKueue, says: "Kueue itself deactivated TrainJob llm", code: exit.Failed},
	}, func(t *testing.T, tc row) {
		v, stop := waits("gpus", runs), sync.Once{}
		v.job.UID = "job"
		v.workload.ObjectMeta = metav1.ObjectMeta{Namespace: "team", Name: "wl", OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(v.job, trainjob.GVK)}}
		stored := kit.Fake(kit.Scheme(trainjob.AddToScheme), v.job, v.workload).Build()
		c := kit.Writes(stored, func(w kit.Write) error {
			if _, is := w.Object.(*kueue.Workload); is {
				return kit.Forbidden("workloads")
			}
			stop.Do(func() {
				v.workload.Status.Conditions = nil
				tc.meanwhile(v)
				expect.NoError(t, stored.Update(t.Context(), v.workload))
			})
			return nil
		})
		a := &actor{client: c, namespace: "team", verb: verbs[3], out: io.Discard}
		err := a.act(t.Context(), "llm")
		expect.Says(t, err, tc.says)
		expect.Same(t, "Unexpected exit code", tc.code, exit.Code(err))
		got := &trainjob.TrainJob{}
		expect.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(v.job), got))
		expect.Same(t, "Unexpected queue", "gpus", got.Labels[kit.QueueLabel])
	})
}

// TestRequeueGoesOnWithTheOneThatItStopped has the API server fail, or another job take the name, between the two writes.
func TestRequeueGoesOnWithTheOneThatItStopped(t *testing.T) {
	for says, answer := range map[string]error{
		"TrainJob llm stays stopped (reading TrainJobs: away): kubectl trainjob resume -n team llm queues it": errors.New("away"),
		"it was deleted, and another TrainJob has its name now":                                               nil,
	} {
		v, reads := waits("gpus", runs), 0
		v.job.UID = "job"
		v.workload.ObjectMeta = metav1.ObjectMeta{Namespace: "team", Name: "wl", OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(v.job, trainjob.GVK)}}
		c := kit.Fake(kit.Scheme(trainjob.AddToScheme), v.job, v.workload).WithInterceptorFuncs(interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
				job, is := obj.(*trainjob.TrainJob)
				if is {
					reads++
				}
				if reads > 1 && answer != nil {
					return answer
				}
				err := c.Get(ctx, key, obj, opts...)
				if is && reads > 1 {
					job.UID = "another"
				}
				return err
			},
		}).Build()
		a := &actor{client: c, namespace: "team", verb: verbs[3], out: io.Discard}
		expect.Says(t, a.act(t.Context(), "llm"), says)
	}
}

// TestExitCodes tells rights that are missing from what else there is, whatever is done to other jobs.
func TestExitCodes(t *testing.T) {
	forbidden := func(why string) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "trainjobs"}, "llm", errors.New(why))
	}
	noRight := forbidden(`User "jane" cannot patch resource "trainjobs" in API group "trainer.kubeflow.org" in the namespace "team"`)
	type row struct {
		read, write error
		names       []string
		want        int
	}
	expect.Rows(t, map[string]row{
		"held":                            {names: []string{"llm"}},
		"no such job":                     {names: []string{"x"}, want: exit.Failed},
		"no right to read":                {read: kit.Forbidden("trainjobs"), names: []string{"llm"}, want: exit.Unseen},
		"no right to write":               {write: noRight, names: []string{"llm"}, want: exit.Unseen},
		"refused by a webhook":            {write: forbidden(`admission webhook "team.example.com" denied the request`), names: []string{"llm"}, want: exit.Failed},
		"no right, and another not there": {write: noRight, names: []string{"llm", "x"}, want: exit.Failed},
	}, func(t *testing.T, tc row) {
		c := kit.Gets(kit.Fake(kit.Scheme(trainjob.AddToScheme), waits("gpus").job).Build(), func(obj client.Object, _ client.ObjectKey) error {
			if _, is := obj.(*trainjob.TrainJob); is {
				return tc.read
			}
			return nil
		})
		c = kit.Writes(c, func(kit.Write) error { return tc.write })
		a := &actor{client: c, namespace: "team", verb: verbs[0], out: io.Discard}
		expect.Same(t, "Unexpected exit code", tc.want, exit.Code(a.all(t.Context(), tc.names)))
	})
}

func TestManaged(t *testing.T) {
	type row struct {
		suspends, gates bool
		fails           error
		use, want       string
		// hidden has the ClusterTrainingRuntimes be nothing that the user may list, and of runtime the job there is.
		hidden, job bool
		note        string
	}
	expect.Rows(t, map[string]row{
		"it starts at once, and the user may not list runtimes": {hidden: true, job: true, want: `{"spec":{"suspend":true}}`},
		"it cannot be asked":                  {hidden: true, note: "note: whether kueue-trainer looks after TrainJobs in namespace team could not be asked"},
		"a queued job is suspended":           {suspends: true, gates: true},
		"it starts at once":                   {want: `{"spec":{"suspend":true}}`},
		"it starts at once, and is to resume": {use: "resume", want: `{"spec":{"suspend":false}}`},
		"nobody answers":                      {fails: errors.New("failed calling webhook"), note: "note: "},
		"suspended without our gate":          {suspends: true, want: `{"spec":{"active":false}}`},
		"so, and is to queue again":           {suspends: true, use: "requeue", want: `{"spec":{"active":false}}`},
		"so, and is to be held":               {suspends: true, use: "hold"},
		"so, and is to resume":                {suspends: true, use: "resume"},
	}, func(t *testing.T, tc row) {
		for _, served := range []trainjob.TrainerVersion{trainjob.Trainer21, trainjob.Trainer22} {
			var said strings.Builder
			objects := []client.Object{&trainer.ClusterTrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: "torch"}}}
			if tc.job {
				objects = append(objects, waits("gpus").job)
			}
			fake := kit.Fake(kit.Scheme(trainjob.AddToScheme), objects...).WithInterceptorFuncs(interceptor.Funcs{
				List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
					if _, is := list.(*trainer.ClusterTrainingRuntimeList); is && tc.hidden {
						return kit.Forbidden("clustertrainingruntimes")
					}
					return c.List(ctx, list, opts...)
				},
			}).Build()
			c := kit.Writes(fake, func(w kit.Write) error {
				spec := &w.Object.(*trainjob.TrainJob).Spec
				spec.Suspend = ptr.To(tc.suspends)
				if tc.gates {
					patch.Of(served).Set(spec, []patch.Placement{patch.Gated("node")})
				}
				return cmp.Or(tc.fails, kit.ErrAnswered)
			})
			a := &actor{client: c, namespace: "team", verb: verb{use: cmp.Or(tc.use, "stop")}, errOut: &said}
			expect.Says(t, a.managed(t.Context(), "llm"), tc.want)
			expect.That(t, strings.HasPrefix(said.String(), tc.note) && (tc.note != "") == (said.Len() > 0), "Said %q", said.String())
		}
	})
}
