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
	// Everything else about the manifests stays.
	for name, tc := range map[string]struct{ in, what, becomes string }{
		"a ServiceAccount in a binding becomes the user": {
			in: `
kind: RoleBinding
metadata: {name: b, namespace: n}
roleRef: {kind: Role, name: r}
subjects:
- {kind: ServiceAccount, name: kueue-controller-manager, namespace: kueue-system}
- {kind: Group, name: "system:authenticated", apiGroup: rbac.authorization.k8s.io}`,
			what:    `{kind: ServiceAccount, name: kueue-controller-manager, namespace: kueue-system}`,
			becomes: `{kind: User, name: kueue, apiGroup: rbac.authorization.k8s.io}`,
		},
		"a webhook is called by URL": {
			in: `
kind: MutatingWebhookConfiguration
metadata: {name: kueue-mutating-webhook-configuration}
webhooks:
- name: mjob.kb.io
  failurePolicy: Fail
  clientConfig: {service: {name: webhook-service, namespace: kueue-system, path: /mutate-job}}`,
			what:    `{service: {name: webhook-service, namespace: kueue-system, path: /mutate-job}}`,
			becomes: `{url: "https://127.0.0.1:20001/mutate-job", caBundle: Y2E=}`,
		},
		"a conversion webhook too": {
			in: `
kind: CustomResourceDefinition
metadata: {name: workloads}
spec: {conversion: {strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: {service: {name: s, path: /convert}}}}}`,
			what:    `{service: {name: s, path: /convert}}`,
			becomes: `{url: "https://127.0.0.1:20001/convert", caBundle: Y2E=}`,
		},
		"cert-manager's annotation goes": {
			in:   `{kind: Role, metadata: {name: r, annotations: {cert-manager.io/inject-ca-from: x, keep: me}}}`,
			what: `cert-manager.io/inject-ca-from: x, `,
		},
		"what serves a manager in a pod is dropped": {in: "{kind: Deployment}\n---\n{kind: Service}", what: "{kind: Deployment}\n---\n{kind: Service}"},
	} {
		t.Run(name, func(t *testing.T) {
			want := Decode([]byte(strings.Replace(tc.in, tc.what, tc.becomes, 1)))
			if diff := cmp.Diff(want, Retarget(Decode([]byte(tc.in)), target), cmpopts.EquateEmpty()); diff != "" {
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
