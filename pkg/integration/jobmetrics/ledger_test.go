// SPDX-License-Identifier: Apache-2.0

package jobmetrics

import (
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/ledger"
	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestFactsOf(t *testing.T) {
	start := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	type row struct {
		waits bool
		job   func(*trainjob.TrainJob)
		wl    func(*kueue.Workload)
		want  ledger.Facts
	}
	failed := func(job *trainjob.TrainJob) {
		job.Status.Conditions = []metav1.Condition{kit.True(trainer.TrainJobFailed, "")}
	}
	elsewhere := func(job *trainjob.TrainJob) { job.Spec.ManagedBy = new(kueue.MultiKueueControllerName) }
	expect.Rows(t, map[string]row{
		"it runs":                    {want: ledger.Facts{Started: start, User: "ann"}},
		"Kueue waits for pods":       {waits: true, want: ledger.Facts{WaitsForPods: true, User: "ann"}},
		"it has failed":              {job: failed, want: ledger.Facts{Started: start, User: "ann", JobEnded: time.Unix(1, 0), Outcome: metrics.OutcomeFailed}},
		"it runs in another cluster": {job: elsewhere, wl: kit.Since(time.Unix(2000, 0)), want: ledger.Facts{Started: time.Unix(2000, 0), User: "ann"}},
		"it is a former job's":       {wl: func(wl *kueue.Workload) { wl.OwnerReferences[0].UID = "former" }, want: ledger.Facts{UserUnknown: true}},
		"it is orphaned":             {wl: func(wl *kueue.Workload) { wl.OwnerReferences = nil }, want: ledger.Facts{UserUnknown: true}},
	}, func(t *testing.T, tc row) {
		job := inttest.Job("a")
		job.Labels = map[string]string{"example.com/user": "ann"}
		js := inttest.JobSetOf(job, false)
		child := kit.ChildJob(js, "download", kit.Succeeded(1))
		child.Status.StartTime = new(metav1.NewTime(start))
		cached := inttest.Fake(kit.With(job, tc.job), js, child).Build()
		expect.Same(t, "Unexpected facts", tc.want, FactsOf(t.Context(), cached, inttest.AdmittedOf("a", tc.wl), "example.com/user", tc.waits))
	})
}
