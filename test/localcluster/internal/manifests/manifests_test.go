// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/attempt"
)

var target = Target{User: "kueue", WebhookURL: "https://127.0.0.1:20001", CABundle: []byte("ca")}

func TestRetarget(t *testing.T) {
	cases := map[string]struct {
		in   string
		want string
	}{
		"a ServiceAccount in a binding becomes the user, a group stays": {
			in: `
kind: RoleBinding
metadata: {name: b, namespace: n}
roleRef: {kind: Role, name: r}
subjects:
- {kind: ServiceAccount, name: kueue-controller-manager, namespace: kueue-system}
- {kind: Group, name: "system:authenticated", apiGroup: rbac.authorization.k8s.io}`,
			want: `
kind: RoleBinding
metadata: {name: b, namespace: n}
roleRef: {kind: Role, name: r}
subjects:
- {kind: User, name: kueue, apiGroup: rbac.authorization.k8s.io}
- {kind: Group, name: "system:authenticated", apiGroup: rbac.authorization.k8s.io}`,
		},
		"a webhook is called by URL, everything else about it stays": {
			in: `
kind: MutatingWebhookConfiguration
metadata: {name: kueue-mutating-webhook-configuration}
webhooks:
- name: mjob.kb.io
  failurePolicy: Fail
  clientConfig: {service: {name: webhook-service, namespace: kueue-system, path: /mutate-job}}`,
			want: `
kind: MutatingWebhookConfiguration
metadata: {name: kueue-mutating-webhook-configuration}
webhooks:
- name: mjob.kb.io
  failurePolicy: Fail
  clientConfig: {url: "https://127.0.0.1:20001/mutate-job", caBundle: Y2E=}`,
		},
		"a conversion webhook too, and cert-manager's annotation goes": {
			in: `
kind: CustomResourceDefinition
metadata: {name: workloads, annotations: {cert-manager.io/inject-ca-from: x, keep: me}}
spec: {conversion: {strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: {service: {name: s, path: /convert}}}}}`,
			want: `
kind: CustomResourceDefinition
metadata: {name: workloads, annotations: {keep: me}}
spec: {conversion: {strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: {url: "https://127.0.0.1:20001/convert", caBundle: Y2E=}}}}`,
		},
		"what serves a manager in a pod is dropped": {in: "{kind: Deployment, metadata: {name: d}}\n---\n{kind: Service, metadata: {name: s}}", want: ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := Retarget(Decode([]byte(tc.in)), target)
			if diff := cmp.Diff(Decode([]byte(tc.want)), got, cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestRetargetNamesWhatItCannotRewrite(t *testing.T) {
	in := "{kind: MutatingWebhookConfiguration, metadata: {name: m}, webhooks: [{name: w, clientConfig: {url: x}}]}"
	err := attempt.To(func() { Retarget(Decode([]byte(in)), target) })
	if err == nil || !strings.Contains(err.Error(), "MutatingWebhookConfiguration m: webhook w") {
		t.Errorf("error %v, want it to name the object and the webhook", err)
	}
}
