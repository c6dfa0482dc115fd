// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"cmp"
	"errors"
	"io"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

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
	}
	expect.Rows(t, map[string]row{
		"a queued job is suspended":           {suspends: true, gates: true},
		"it starts at once":                   {want: `{"spec":{"suspend":true}}`},
		"it starts at once, and is to resume": {use: "resume", want: `{"spec":{"suspend":false}}`},
		"nobody answers":                      {fails: errors.New("failed calling webhook")},
		"suspended without our gate":          {suspends: true, want: `{"spec":{"active":false}}`},
		"so, and is to queue again":           {suspends: true, use: "requeue", want: `{"spec":{"active":false}}`},
		"so, and is to be held":               {suspends: true, use: "hold"},
		"so, and is to resume":                {suspends: true, use: "resume"},
	}, func(t *testing.T, tc row) {
		for _, served := range []trainjob.TrainerVersion{trainjob.Trainer21, trainjob.Trainer22} {
			torch := &trainer.ClusterTrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: "torch"}}
			c := kit.Writes(kit.Fake(kit.Scheme(trainjob.AddToScheme), torch).Build(), func(w kit.Write) error {
				spec := &w.Object.(*trainjob.TrainJob).Spec
				spec.Suspend = ptr.To(tc.suspends)
				if tc.gates {
					patch.Of(served).Set(spec, []patch.Placement{patch.Gated("node")})
				}
				return cmp.Or(tc.fails, kit.ErrAnswered)
			})
			expect.Says(t, managed(t.Context(), c, "team", cmp.Or(tc.use, "stop")), tc.want)
		}
	})
}
