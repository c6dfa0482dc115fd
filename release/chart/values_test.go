// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	k8slabels "k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

const (
	deployment = "Deployment " + namespace + "/kueue-trainer-controller-manager"
	hook       = "Job " + namespace + "/kueue-trainer-uninstall"
	mutating   = "MutatingWebhookConfiguration /kueue-trainer-mutating-webhook-configuration"
	validating = "ValidatingWebhookConfiguration /kueue-trainer-validating-webhook-configuration"
)

func TestValues(t *testing.T) {
	first := func(path ...string) func(map[string]any) any {
		return func(obj map[string]any) any {
			var value any = obj
			for _, key := range path {
				if list, ok := value.([]any); ok {
					value = list[0]
				}
				value = value.(map[string]any)[key]
			}
			return value
		}
	}
	manager := func(key string) func(map[string]any) any {
		return first("spec", "template", "spec", "containers", key)
	}
	configuration := func(keys ...string) func(map[string]any) any {
		return func(obj map[string]any) any {
			var parsed map[string]any
			if err := yaml.Unmarshal([]byte(obj["data"].(map[string]any)["configuration.yaml"].(string)), &parsed); err != nil {
				t.Fatal(err)
			}
			return first(keys...)(parsed)
		}
	}
	const digest = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	const configMap = "ConfigMap " + namespace + "/kueue-trainer-config"
	cases := map[string]struct {
		values string
		object string
		read   func(map[string]any) any
		want   any
	}{
		"an image by tag":     {values: "image: {repository: example.com/t, tag: v1}", object: deployment, read: manager("image"), want: "example.com/t:v1"},
		"an image by digest":  {values: "image: {repository: example.com/t, tag: v1, digest: '" + digest + "'}", object: deployment, read: manager("image"), want: "example.com/t@" + digest},
		"the chart's version": {object: deployment, read: manager("image"), want: "ghcr.io/kueue-trainer/kueue-trainer:main"},
		"one replica":         {values: "replicas: 1", object: deployment, read: first("spec", "replicas"), want: int64(1)},
		"a priority class": {values: "priorityClassName: system-cluster-critical", object: deployment,
			read: first("spec", "template", "spec", "priorityClassName"), want: "system-cluster-critical"},
		"labels of one's own": {values: "extraLabels: {team: ml}", object: "ServiceAccount " + namespace + "/kueue-trainer-controller-manager",
			read: first("metadata", "labels", "team"), want: "ml"},
		"Kueue in another namespace":              {values: "kueue: {namespace: kueue}", object: configMap, read: configuration("kueueConfigMap", "namespace"), want: "kueue"},
		"and the right to read its configuration": {values: "kueue: {namespace: kueue, configMap: mine}", object: "Role kueue/kueue-trainer-manager-role", read: first("rules", "resourceNames"), want: []any{"mine"}},
		"and to whom it is given":                 {values: "kueue: {namespace: kueue}", object: "RoleBinding kueue/kueue-trainer-manager-rolebinding", read: first("subjects", "namespace"), want: namespace},
		"a setting of the configuration":          {values: "configuration: {startTimeout: 5m}", object: configMap, read: configuration("startTimeout"), want: "5m"},
		"the rest of it stays":                    {values: "configuration: {startTimeout: 5m}", object: configMap, read: configuration("leaderElection", "leaderElect"), want: true},
		"a time-out of the webhooks":              {values: "webhooks: {timeoutSeconds: 5}", object: validating, read: first("webhooks", "timeoutSeconds"), want: int64(5)},
		"namespaces of the webhooks": {values: "webhooks: {namespaceSelector: {matchLabels: {ml: 'true'}}}", object: mutating,
			read: first("webhooks", "namespaceSelector"), want: map[string]any{"matchLabels": map[string]any{"ml": "true"}}},
		"conditions of one's own, beside ours": {values: "webhooks: {matchConditions: [{name: mine, expression: 'true'}]}", object: mutating,
			read: first("webhooks", "matchConditions"), want: []any{
				map[string]any{"name": "not-deleting", "expression": "!has(object.metadata.deletionTimestamp)"},
				map[string]any{"name": "mine", "expression": "true"}}},
		"cert-manager's authority goes into the webhooks": {values: "certificates: {certManager: {enabled: true}}", object: validating,
			read: first("metadata", "annotations", "cert-manager.io/inject-ca-from"), want: namespace + "/kueue-trainer-webhooks"},
		"and the manager signs nothing": {values: "certificates: {certManager: {enabled: true}}", object: configMap,
			read: configuration("internalCertManagement", "enable"), want: false},
		"cert-manager's issuer of one's own": {values: "certificates: {certManager: {enabled: true, issuerRef: {kind: ClusterIssuer, name: ours}}}",
			object: "Certificate " + namespace + "/kueue-trainer-webhooks", read: first("spec", "issuerRef"), want: map[string]any{"kind": "ClusterIssuer", "name": "ours"}},
		"Prometheus' operator finds the metrics": {values: "metrics: {serviceMonitor: {enabled: true, labels: {release: prometheus}}}",
			object: "ServiceMonitor " + namespace + "/kueue-trainer", read: first("metadata", "labels", "release"), want: "prometheus"},
		"or the pods": {values: "metrics: {podMonitor: {enabled: true, authorization: {credentials: {name: prometheus, key: token}}}}", object: "PodMonitor " + namespace + "/kueue-trainer",
			read: first("spec", "podMetricsEndpoints", "port"), want: "metrics"},
		"the image of the hook": {values: "image: {repository: example.com/t, digest: '" + digest + "'}", object: hook,
			read: manager("image"), want: "example.com/t@" + digest},
		"the nodes of the hook": {values: "nodeSelector: {pool: system}", object: hook,
			read: first("spec", "template", "spec", "nodeSelector"), want: map[string]any{"pool": "system"}},
		"a network policy": {values: "networkPolicy: {enabled: true}", object: "NetworkPolicy " + namespace + "/kueue-trainer-controller-manager",
			read: first("spec", "policyTypes"), want: []any{"Ingress"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			obj := mustRender(t, tc.values)[tc.object]
			if obj == nil {
				t.Fatalf("There is no %s", tc.object)
			}
			if diff := cmp.Diff(tc.want, tc.read(obj.Object)); diff != "" {
				t.Errorf("Unexpected value (-want,+got):\n%s", diff)
			}
		})
	}
}

func TestWhatIsSwitchedOffIsNotThere(t *testing.T) {
	for values, kind := range map[string]string{
		"policies: {enabled: false}":                   "ValidatingAdmissionPolicy ",
		"podDisruptionBudget: {enabled: false}":        "PodDisruptionBudget ",
		"certificates: {certManager: {enabled: true}}": "Secret ",
		"rbac: {aggregateToKueue: false}":              "ClusterRole /kueue-trainer-runtimes-viewer",
		"uninstallHook: {enabled: false}":              "Job ",
	} {
		t.Run(values, func(t *testing.T) {
			for key := range mustRender(t, values) {
				if strings.HasPrefix(key, kind) {
					t.Errorf("%s is there", key)
				}
			}
		})
	}
}

func TestMistakesAreRefused(t *testing.T) {
	for _, values := range []string{
		"replica: 1", "replicas: two", "image: {digest: latest}", "image: {pullPolicy: always}", "webhooks: {timeoutSeconds: 31}",
		"webhooks: {matchConditions: [{name: queued, expression: 'true'}]}", "kueue: {namespace: ''}", "metrics: {serviceMonitor: {interval: often}}",
		"configuration: {webhook: {port: 1}}", "kueue: {namespace: " + namespace + "}", "metrics: {podMonitor: {enabled: true}}",
	} {
		if _, err := render(t, values); err == nil {
			t.Errorf("%s is taken", values)
		}
	}
}

// Every pod is let in where Pod Security is restricted, which the namespace asks for.
func TestManagerIsRestricted(t *testing.T) {
	spec, _, _ := unstructured.NestedMap(mustRender(t, "")[deployment].Object, "spec", "template", "spec")
	container := spec["containers"].([]any)[0].(map[string]any)["securityContext"]
	want := map[string]any{"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": map[string]any{"drop": []any{"ALL"}}}
	if diff := cmp.Diff(want, container); diff != "" {
		t.Errorf("Unexpected securityContext (-want,+got):\n%s", diff)
	}
}

// It waits until the manager's pods are gone, and must not be behind the manager's Service.
func TestTheHookIsNoPodOfTheManager(t *testing.T) {
	rendered := mustRender(t, "extraLabels: {team: ml}")
	labels, _, _ := unstructured.NestedStringMap(rendered[hook].Object, "spec", "template", "metadata", "labels")
	for key, field := range map[string][]string{
		deployment: {"spec", "selector", "matchLabels"},
		"Service " + namespace + "/kueue-trainer-webhook-service": {"spec", "selector"},
	} {
		selector, found, _ := unstructured.NestedStringMap(rendered[key].Object, field...)
		if !found || k8slabels.SelectorFromSet(selector).Matches(k8slabels.Set(labels)) {
			t.Errorf("Selector %v of %s matches the labels %v of the hook's pod", selector, key, labels)
		}
	}
}
