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
			if err != nil || reported != tc.want {
				t.Fatalf("Report() = %t, %v; want %t", reported, err, tc.want)
			}
			if outdated := r.Expectations.Outdated(key, view); outdated != tc.want {
				t.Errorf("The view that it was written by is an old one: %t, want %t", outdated, tc.want)
			}
			if written != tc.want {
				t.Errorf("PodsReady is written: %t, want %t", written, tc.want)
			}
		})
	}
}

func TestReportCountsAStartAndNoRecovery(t *testing.T) {
	cases := map[string]struct {
		was  string
		want uint64
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
			_, err := r.Report(t.Context(), client.ObjectKey{Namespace: wl.Namespace, Name: "llm"}, wl, true)
			inttest.Must(t, err)
			if got := readyCount(t, t.Name()); got != tc.want {
				t.Errorf("Counted as ready %d times, want %d", got, tc.want)
			}
		})
	}
}

// readyCount is how often Workloads of a ClusterQueue were counted as ready.
func readyCount(t *testing.T, clusterQueue string) uint64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(kueuelib.JobMetrics()...)
	families, err := registry.Gather()
	inttest.Must(t, err)
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if family.GetName() == "kueue_ready_wait_time_seconds" && label.GetName() == "cluster_queue" && label.GetValue() == clusterQueue {
					return metric.GetHistogram().GetSampleCount()
				}
			}
		}
	}
	return 0
}
