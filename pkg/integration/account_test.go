// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"
	"time"

	"github.com/go-logr/logr"
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/testenv"
	"github.com/kueue-trainer/kueue-trainer/pkg/ledger"
	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

var accountedStart = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

// accountScene is a TrainJob that runs since then, with its JobSet, Job and Workload.
func accountScene(t *testing.T) (*attempt, *trainjob.TrainJob, *kueue.Workload) {
	t.Helper()
	stored, js := disagreeing(false, false, true, accountedStart)
	stored.Labels["example.com/user"] = "ann"
	child := doneJob(js)
	child.Status.StartTime = ptr.To(metav1.NewTime(accountedStart))
	wl := inttest.WorkloadOf(stored, inttest.Admitted)
	wl.UID = "wl"
	r, _ := newReconciler(t, stored, js, child, wl)
	return r, stored, wl
}

func TestAccountFacts(t *testing.T) {
	cases := map[string]struct {
		waits  bool
		change func(*trainjob.TrainJob, *kueue.Workload)
		want   ledger.Facts
	}{
		"it runs":              {want: ledger.Facts{Started: accountedStart, User: "ann"}},
		"Kueue waits for pods": {waits: true, want: ledger.Facts{WaitsForPods: true, User: "ann"}},
		"it has failed": {
			change: func(job *trainjob.TrainJob, _ *kueue.Workload) {
				job.Status.Conditions = []metav1.Condition{inttest.True(trainer.TrainJobFailed, "")}
			},
			want: ledger.Facts{Started: accountedStart, User: "ann", JobEnded: time.Unix(1, 0), Outcome: metrics.OutcomeFailed},
		},
		"it runs in another cluster": {
			change: func(job *trainjob.TrainJob, wl *kueue.Workload) {
				job.Spec.ManagedBy = ptr.To(kueue.MultiKueueControllerName)
				wl.Status.Conditions[1].LastTransitionTime = metav1.Unix(2000, 0)
			},
			want: ledger.Facts{Started: time.Unix(2000, 0), User: "ann"},
		},
		"it is a former job's": {
			change: func(_ *trainjob.TrainJob, wl *kueue.Workload) { wl.OwnerReferences[0].UID = "former" },
			want:   ledger.Facts{UserUnknown: true},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r, job, wl := accountScene(t)
			if tc.change != nil {
				tc.change(job, wl)
				expect.NoError(t, r.env.client.Update(t.Context(), job))
			}
			if tc.waits {
				r.env.kueue = testenv.Kueue(testenv.WaitsForPods)
			}
			got := accountFacts{client: r.env.client, env: r.env, userLabel: "example.com/user"}.of(t.Context(), wl)
			expect.Same(t, "Unexpected facts", tc.want, got)
		})
	}
}

func TestQuotaIsKeptUntilItIsAccountedFor(t *testing.T) {
	condition := func(kind string) func(*trainjob.TrainJob, *kueue.Workload) {
		return func(_ *trainjob.TrainJob, wl *kueue.Workload) { inttest.Is(kind, "")(wl) }
	}
	cases := map[string]struct {
		change func(*trainjob.TrainJob, *kueue.Workload)
		nobody bool
		want   bool
	}{
		"it is evicted":                      {change: condition(kueue.WorkloadEvicted)},
		"it is evicted, and nobody accounts": {change: condition(kueue.WorkloadEvicted), nobody: true, want: true},
		"its Workload is about to say that it finished": {
			change: func(job *trainjob.TrainJob, _ *kueue.Workload) {
				job.Status.Conditions = []metav1.Condition{inttest.True(trainer.TrainJobComplete, "")}
			}, want: true,
		},
		"its Workload says that it has finished": {change: condition(kueue.WorkloadFinished), want: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r, stored, wl := accountScene(t)
			tc.change(stored, wl)
			expect.NoError(t, r.env.client.Update(t.Context(), wl))
			if !tc.nobody {
				r.env.ledger = unreadLedger(r)
			}
			j := jobOf(r, stored)
			expect.Same(t, "Unexpected accountedHolding", tc.want, expect.Must(j.accountedHolding(t.Context(), false))(t))
			again := j.unaccounted > 0
			expect.That(t, again != tc.want, "It looks again after %s, accounted for: %t", j.unaccounted, tc.want)
		})
	}
}

// unreadLedger is one that has not read what was saved yet, so that it saves nothing.
func unreadLedger(r *attempt) *ledger.Ledger {
	facts := accountFacts{client: r.env.client, env: r.env}
	return ledger.New(ledger.Options{Facts: facts.of, Clock: clock.RealClock{}, Log: logr.Discard()})
}

// Trainer may be about to resume the job: with the gate in the same request, no pod of it is bound.
func TestStopSetsTheGateBeforeItIsAccountedFor(t *testing.T) {
	r, stored, wl := accountScene(t)
	inttest.Isnt(kueue.WorkloadAdmitted, "")(wl)
	inttest.Is(kueue.WorkloadEvicted, kueue.WorkloadEvictedByPreemption)(wl)
	expect.NoError(t, r.env.client.Update(t.Context(), wl))
	expect.NoError(t, r.env.client.DeleteAllOf(t.Context(), &batchv1.Job{}, client.InNamespace("ns")))
	r.env.ledger = unreadLedger(r)
	j := jobOf(r, stored)
	expect.Must(j.Stop(t.Context(), r.env.client, nil, jobframework.StopReasonWorkloadEvicted, ""))(t)
	expect.That(t, j.IsSuspended() && r.env.Field.HoldsGate(&j.Spec),
		"Stop left the TrainJob with suspend: %t, entry with the gate: %t", j.IsSuspended(), r.env.Field.HoldsGate(&j.Spec))
	expect.That(t, j.IsActive(), "The quota goes before it is accounted for")
}
