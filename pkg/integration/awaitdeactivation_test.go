// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"
	"time"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/deactivation"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestAwaitDeactivation(t *testing.T) {
	stopped := func(job *trainjob.TrainJob) { job.Spec.Suspend = ptr.To(true) }
	elsewhere := func(job *trainjob.TrainJob) { job.Spec.ManagedBy = ptr.To(kueue.MultiKueueControllerName) }
	marked := func(wl *kueue.Workload) { deactivation.Mark(wl, time.Now()) }
	cases := map[string]struct {
		job      func(*trainjob.TrainJob)
		workload func(*kueue.Workload)
		// deleted has the Workload deleted, and pods a pod there.
		deleted, pods bool
		// wantSuspended and wantActive are what is stored afterwards, wantOver whether the reconcile is over.
		wantSuspended, wantActive, wantOver bool
	}{
		"a job that runs is stopped, and keeps its quota":         {workload: marked, pods: true, wantSuspended: true, wantActive: true, wantOver: true},
		"so is one whose Workload Kueue is about to deactivate":   {workload: inttest.Is(kueue.WorkloadDeactivationTarget, ""), pods: true, wantSuspended: true, wantActive: true, wantOver: true},
		"a stopped one keeps its quota while it has pods":         {job: stopped, workload: marked, pods: true, wantSuspended: true, wantActive: true, wantOver: true},
		"a stopped one without pods is deactivated":               {job: stopped, workload: marked, wantSuspended: true, wantOver: true},
		"one that nobody deactivates runs on":                     {pods: true, wantActive: true},
		"one in another cluster is deactivated, and not stopped":  {job: elsewhere, workload: marked, wantOver: true},
		"one without quota has nothing to wait for":               {workload: func(wl *kueue.Workload) { marked(wl); wl.Status = kueue.WorkloadStatus{} }, wantActive: true},
		"one whose Workload is deleted gives its quota back then": {workload: marked, deleted: true, wantActive: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			stored := inttest.Job("a")
			if tc.job != nil {
				tc.job(stored)
			}
			wl := inttest.AdmittedOf("a")
			wl.Finalizers = []string{kueue.ResourceInUseFinalizerName}
			if tc.workload != nil {
				tc.workload(wl)
			}
			objects := []client.Object{stored, wl}
			if tc.pods {
				objects = append(objects, inttest.PodOf(stored.Namespace, stored.Name))
			}
			r, _ := newReconciler(t, objects...)
			if tc.deleted {
				expect.NoError(t, r.env.client.Delete(t.Context(), wl))
			}
			got := jobOf(r, stored).awaitDeactivation(t.Context())
			expect.NoError(t, got.err)
			expect.Same(t, "The reconcile is over", tc.wantOver, got.ends())
			expect.NoError(t, r.env.client.Get(t.Context(), client.ObjectKeyFromObject(wl), wl))
			expect.Same(t, "The Workload is active", tc.wantActive, kueuelib.IsActive(wl))
			expect.NoError(t, r.env.client.Get(t.Context(), client.ObjectKeyFromObject(stored), stored))
			expect.Same(t, "The job is suspended", tc.wantSuspended, stored.Suspended())
		})
	}
}
