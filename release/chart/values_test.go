// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"os"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	k8slabels "k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/kueue-trainer/kueue-trainer/release/internal/check"
)

const (
	deployment = "Deployment " + namespace + "/kueue-trainer-controller-manager"
	hook       = "Job " + namespace + "/kueue-trainer-uninstall"
)

// The manager reads its configuration when it starts.
func TestAnotherConfigurationMakesNewPods(t *testing.T) {
	checksum := func(values string) string {
		t.Helper()
		annotations, _, _ := unstructured.NestedStringMap(mustRender(t, values)[deployment].Object, "spec", "template", "metadata", "annotations")
		return annotations["checksum/configuration"]
	}
	before := checksum("")
	if same := checksum("replicas: 3"); before == "" || same != before {
		t.Errorf("Checksums %q and %q of the same configuration", before, same)
	}
	if changed := checksum("configuration: {startTimeout: 5m}"); changed == before {
		t.Errorf("Checksum %q of another configuration", changed)
	}
}

// Without the chart, kubectl apply -k config/monitoring brings the alerts, of which one fires where nothing is scraped.
func TestBothServiceMonitorsAreTheSame(t *testing.T) {
	rendered := mustRender(t, "metrics: {serviceMonitor: {enabled: true}}")["ServiceMonitor "+namespace+"/kueue-trainer"]
	var shipped map[string]any
	check.OK(t, yaml.Unmarshal(check.Must(os.ReadFile("../../config/monitoring/servicemonitor.yaml"))(t), &shipped))
	check.Same(t, "spec of config/monitoring's", rendered.Object["spec"], shipped["spec"])
	listed := string(check.Must(os.ReadFile("../../config/monitoring/kustomization.yaml"))(t))
	if !strings.Contains(listed, "- servicemonitor.yaml") {
		t.Errorf("config/monitoring leaves it out:\n%s", listed)
	}
}

// kubectl apply knows no hooks: after helm template it would uninstall at once.
func TestWhatHelmTemplatePrintsHasNoHook(t *testing.T) {
	for key, obj := range check.Must(render(t, "", engine.Render))(t) {
		if how := obj.GetAnnotations()["helm.sh/hook"]; how != "" {
			t.Errorf("%s is a hook, %s", key, how)
		}
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
