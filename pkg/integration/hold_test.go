// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestEnsureHeld(t *testing.T) {
	now := ptr.To(metav1.Now())
	cases := map[string]struct {
		job      func(*trainjob.TrainJob)
		workload func(*kueue.Workload)
		want     bool
	}{
		"a job that runs":          {want: true},
		"a job that is deleted":    {job: func(job *trainjob.TrainJob) { job.DeletionTimestamp = now }},
		"a job that nobody knows":  {job: func(job *trainjob.TrainJob) { job.UID = "" }},
		"another job of that name": {job: func(job *trainjob.TrainJob) { job.UID = "other" }},
		"a finished job": {job: func(job *trainjob.TrainJob) {
			job.Status.Conditions = []metav1.Condition{inttest.True(trainer.TrainJobComplete, "")}
		}},
		"a finished Workload": {workload: inttest.Is(kueue.WorkloadFinished, "")},
		"a Workload that is deleted": {workload: func(wl *kueue.Workload) {
			wl.DeletionTimestamp, wl.Finalizers = now, []string{"example.com/mine"}
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			trainJob := inttest.Job("a")
			wl := inttest.WorkloadOf(trainJob)
			kit.With(trainJob, tc.job)
			kit.With(wl, tc.workload)
			c := inttest.Fake(wl).Build()
			there := []kueue.Workload{*theWorkload(t, c)}
			expect.NoError(t, (&attempt{env: &environment{client: c}}).ensureHeld(t.Context(), &job{TrainJob: *trainJob}, there))
			inttest.Reload(t, c, wl)
			expect.Same(t, "The Workload has the finalizer", tc.want, controllerutil.ContainsFinalizer(wl, kueue.ResourceInUseFinalizerName))
		})
	}
}
