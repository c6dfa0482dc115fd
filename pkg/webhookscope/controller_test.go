// SPDX-License-Identifier: Apache-2.0

package webhookscope

import (
	"context"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kueue-trainer/kueue-trainer/config/policies"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// The policies hold where Kueue manages TrainJobs, that of Workloads everywhere, and nothing is written twice.
func TestBind(t *testing.T) {
	team := &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}
	bound := func(name string, selector *metav1.LabelSelector) *admissionregistrationv1.ValidatingAdmissionPolicyBinding {
		b := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if selector != nil {
			b.Spec.MatchResources = &admissionregistrationv1.MatchResources{NamespaceSelector: selector}
		}
		return b
	}
	cases := map[string]struct {
		have, want *metav1.LabelSelector
		writes     int
	}{
		"as they are installed, where all are managed": {want: &metav1.LabelSelector{}},
		"as they are installed":                        {want: team, writes: 1},
		"as the API server completes them":             {have: &metav1.LabelSelector{}},
		"as they are to be":                            {have: team, want: team},
		"as they were":                                 {have: team, writes: 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			writes := 0
			c := interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme.Scheme).
				WithObjects(bound("kueue-trainer-pods", tc.have), bound(policies.OfWorkloads, nil)).Build(), interceptor.Funcs{
				Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
					writes++
					return c.Patch(ctx, obj, patch, opts...)
				},
			})
			s := &Scope{Options: Options{Live: c}, client: c}
			expect.NoError(t, s.bind(t.Context(), tc.want))
			expect.Same(t, "Unexpected number of writes", tc.writes, writes)
			var got admissionregistrationv1.ValidatingAdmissionPolicyBinding
			expect.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: "kueue-trainer-pods"}, &got))
			if tc.writes > 0 {
				expect.Same(t, "Unexpected selector", tc.want, got.Spec.MatchResources.NamespaceSelector)
			}
			expect.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: policies.OfWorkloads}, &got))
			expect.That(t, got.Spec.MatchResources == nil, "The policy of Workloads is bound to %v", got.Spec.MatchResources)
		})
	}
}
