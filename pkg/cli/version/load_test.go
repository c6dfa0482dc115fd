// SPDX-License-Identifier: Apache-2.0

package version

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestManagerInstalled(t *testing.T) {
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
		Namespace: cluster.Manager.Namespace, Name: cluster.Manager.Deployment, Labels: map[string]string{cluster.VersionLabel: "v0.1.0"},
	}}
	webhook := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: cluster.Manager.Webhook}}
	deployments, webhooks := "deployments.apps", "mutatingwebhookconfigurations.admissionregistration.k8s.io"
	cases := map[string]struct {
		objects []client.Object
		unseen  []string
		want    Part
	}{
		"a Deployment": {objects: []client.Object{deployment}, want: Part{Version: "v0.1.0"}},
		"a webhook of a manager that runs beside": {objects: []client.Object{webhook}},
		"neither":                              {want: Part{Missing: true}},
		"a webhook alone may be seen":          {objects: []client.Object{webhook}, unseen: []string{deployments}},
		"no webhook, and it alone may be seen": {unseen: []string{deployments}, want: Part{unseen: true}},
		"Deployments alone may be seen":        {objects: []client.Object{webhook}, unseen: []string{webhooks}, want: Part{unseen: true}},
		"nothing may be seen":                  {objects: []client.Object{deployment, webhook}, unseen: []string{deployments, webhooks}, want: Part{unseen: true}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := kit.Fake(kit.Scheme(), tc.objects...).WithInterceptorFuncs(kit.RefusingGet(func(object client.Object, _ client.ObjectKey) error {
				kind := webhooks
				if _, is := object.(*appsv1.Deployment); is {
					kind = deployments
				}
				if slices.Contains(tc.unseen, kind) {
					return kit.Forbidden(kind)
				}
				return nil
			})).Build()
			l := &loader{client: c}
			got := expect.Must(l.part(t.Context(), cluster.Manager))(t)
			tc.want.Name = cluster.Manager.Name
			expect.Same(t, "Unexpected part", tc.want, got, cmp.AllowUnexported(Part{}))
			expect.Same(t, "Unexpected kinds", tc.unseen, l.unseen)
		})
	}
}
