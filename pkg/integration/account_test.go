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
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/testenv"
	"github.com/kueue-trainer/kueue-trainer/pkg/ledger"
	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

var accountedStart = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

// accountScene is a TrainJob that runs since then, with its JobSet, Job and Workload.
func accountScene(t *testing.T) (*reconciler, *trainjob.TrainJob, *kueue.Workload) {
	t.Helper()
	stored, js := disagreeing(false, false, true, accountedStart)
	stored.Labels["example.com/user"] = "ann"
	child := kit.ChildJob(js, "download", kit.Succeeded(1))
	child.Status.StartTime = new(metav1.NewTime(accountedStart))
	wl := inttest.WorkloadOf(stored, kit.Admitted)
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
				job.Status.Conditions = []metav1.Condition{kit.True(trainer.TrainJobFailed, "")}
			},
			want: ledger.Facts{Started: accountedStart, User: "ann", JobEnded: time.Unix(1, 0), Outcome: metrics.OutcomeFailed},
		},
		"it runs in another cluster": {
			change: func(job *trainjob.TrainJob, wl *kueue.Workload) {
				job.Spec.ManagedBy = new(kueue.MultiKueueControllerName)
				wl.Status.Conditions[1].LastTransitionTime = metav1.Unix(2000, 0)
			},
			want: ledger.Facts{Started: time.Unix(2000, 0), User: "ann"},
		},
		"it is a former job's": {change: func(_ *trainjob.TrainJob, wl *kueue.Workload) { wl.OwnerReferences[0].UID = "former" },
			want: ledger.Facts{UserUnknown: true}},
		"it is orphaned": {change: func(_ *trainjob.TrainJob, wl *kueue.Workload) { wl.OwnerReferences = nil }, want: ledger.Facts{UserUnknown: true}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r, job, wl := accountScene(t)
			if tc.change != nil {
				tc.change(job, wl)
				expect.NoError(t, r.deps.client.Update(t.Context(), job))
			}
			if tc.waits {
				r.deps.kueue = testenv.Kueue(testenv.WaitsForPods)
			}
			got := accountFacts{client: r.deps.client, deps: r.deps, userLabel: "example.com/user"}.of(t.Context(), wl)
			expect.Same(t, "Unexpected facts", tc.want, got)
		})
	}
}

// Nobody waits for a GPU because the account of who had it is not saved.
func TestQuotaDoesNotWaitForTheLedger(t *testing.T) {
	r, stored, wl := accountScene(t)
	kit.Is(kueue.WorkloadEvicted, kueue.WorkloadEvictedByPreemption)(wl)
	expect.NoError(t, r.deps.client.Update(t.Context(), wl))
	expect.NoError(t, r.deps.client.DeleteAllOf(t.Context(), &batchv1.Job{}, client.InNamespace("ns")))
	expect.NoError(t, r.deps.client.DeleteAllOf(t.Context(), &jobsetapi.JobSet{}, client.InNamespace("ns")))
	// It has not read what was saved yet, so it saves nothing.
	facts := accountFacts{client: r.deps.client, deps: r.deps}
	r.deps.ledger = ledger.New(ledger.Options{Facts: facts.of, Clock: clock.RealClock{}, Log: logr.Discard()})
	stored.Spec.Suspend = new(true)
	j := jobOf(t, r, stored)
	expect.Must(j.Stop(t.Context(), r.deps.client, nil, jobframework.StopReasonWorkloadEvicted, ""))(t)
	expect.That(t, !j.IsActive(), "The quota of a job without pods stays with it")
}
