// SPDX-License-Identifier: Apache-2.0

package podsready

import (
	"context"
	"testing"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobclient"
)

func TestReportIsWrittenByAnOldViewFromThenOn(t *testing.T) {
	cases := map[string]struct{ ready, want bool }{
		"there is something to say": {ready: true, want: true},
		"what it says will do":      {},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			wl := inttest.WorkloadOf("a", true)
			wl.Status.Admission = &kueue.Admission{}
			written := false
			c := fake.NewClientBuilder().WithScheme(inttest.Scheme(t)).WithObjects(wl).WithInterceptorFuncs(interceptor.Funcs{
				SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
					written = true
					return nil
				},
			}).Build()
			r := Reporter{Client: c, Kueue: inttest.KueueDefaults(t), Expectations: jobclient.NewExpectations(clock.RealClock{})}
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
