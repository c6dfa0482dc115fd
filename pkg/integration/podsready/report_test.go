// SPDX-License-Identifier: Apache-2.0

package podsready

import (
	"context"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/testenv"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobclient"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestReportIsWrittenByAnOldViewFromThenOn(t *testing.T) {
	cases := map[string]struct{ ready, want bool }{
		"there is something to say": {ready: true, want: true},
		"what it says will do":      {},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			wl := inttest.AdmittedOf("a")
			written := false
			c := inttest.Fake(wl).WithInterceptorFuncs(interceptor.Funcs{
				SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
					written = true
					return nil
				},
			}).Build()
			r := Reporter{Client: c, Kueue: testenv.KueueDefaults(t), Expectations: jobclient.NewExpectations(clock.RealClock{})}
			key := client.ObjectKey{Namespace: wl.Namespace, Name: "llm"}
			view := jobclient.VersionsOf([]kueue.Workload{*wl})
			reported, err := r.Report(t.Context(), key, wl, tc.ready)
			expect.Need(t, err == nil && reported == tc.want, "Report() = %t, %v; want %t", reported, err, tc.want)
			expect.Same(t, "The view that it was written by is an old one", tc.want, r.Expectations.Outdated(key, view))
			expect.Same(t, "PodsReady is written", tc.want, written)
		})
	}
}

func TestReportCountsAStartAndNoRecovery(t *testing.T) {
	cases := map[string]struct {
		was  string
		want float64
	}{
		"it gets ready": {want: 1},
		"it recovers":   {was: kueue.WorkloadWaitForRecovery},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			wl := inttest.AdmittedOf("a")
			wl.Status.Admission.ClusterQueue = kueue.ClusterQueueReference(t.Name())
			if tc.was != "" {
				inttest.Isnt(kueue.WorkloadPodsReady, tc.was)(wl)
			}
			c := inttest.Fake(wl).WithStatusSubresource(wl).Build()
			r := Reporter{Client: c, Kueue: testenv.KueueDefaults(t), Expectations: jobclient.NewExpectations(clock.RealClock{})}
			expect.Must(r.Report(t.Context(), client.ObjectKey{Namespace: wl.Namespace, Name: "llm"}, wl, true))(t)
			registry := prometheus.NewRegistry()
			registry.MustRegister(kueuelib.JobMetrics()...)
			expect.Same(t, "Unexpected number of times that it is counted as ready", tc.want,
				inttest.Recorded(t, registry, "cluster_queue")["kueue_ready_wait_time_seconds "+t.Name()])
		})
	}
}
