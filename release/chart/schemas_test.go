// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/yannh/kubeconform/pkg/resource"
	"github.com/yannh/kubeconform/pkg/validator"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/kueue-trainer/kueue-trainer/release/internal/check"
)

// Every object that the chart renders is one that its API knows, field by field.
func TestRenderedObjectsAreValid(t *testing.T) {
	known := newSchemas(t)
	for name, values := range map[string]string{
		"defaults": "",
		"all that can be switched on": `
image: {digest: "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}
imagePullSecrets: [registry]
extraLabels: {team: ml}
priorityClassName: system-cluster-critical
nodeSelector: {pool: system}
tolerations: [{key: system, operator: Exists}]
affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchFields: [{key: metadata.name, operator: In, values: [a]}]}}]}}
podAnnotations: {team: ml}
networkPolicy: {enabled: true}
webhooks: {timeoutSeconds: 5, namespaceSelector: {matchLabels: {ml: "true"}}, matchConditions: [{name: mine, expression: "true"}]}
certificates: {certManager: {enabled: true}}
metrics:
  serviceMonitor: {enabled: true, labels: {release: prometheus}, authorization: {credentials: {name: prometheus, key: token}}}
  podMonitor: {enabled: true, authorization: {credentials: {name: prometheus, key: token}}}
  prometheusRule: {enabled: true, labels: {release: prometheus}}
  dashboards: {enabled: true}
`,
		"all that can be switched off": `
topologySpread: false
podDisruptionBudget: {enabled: false}
policies: {enabled: false}
rbac: {aggregate: false}
uninstallHook: {enabled: false}
`,
	} {
		t.Run(name, func(t *testing.T) {
			for key, obj := range mustRender(t, values) {
				if err := known.validate(t, obj); err != nil {
					t.Errorf("%s: %v", key, err)
				}
			}
		})
	}
}

// A schema that takes everything would let the test above pass.
func TestUnknownFieldsAreInvalid(t *testing.T) {
	known := newSchemas(t)
	rendered := mustRender(t, "{certificates: {certManager: {enabled: true}}, metrics: {serviceMonitor: {enabled: true}, prometheusRule: {enabled: true}}}")
	for _, key := range []string{
		deployment, "Certificate " + namespace + "/kueue-trainer-webhooks",
		"ServiceMonitor " + namespace + "/kueue-trainer", "PrometheusRule " + namespace + "/kueue-trainer",
	} {
		obj := rendered[key]
		if err := known.validate(t, obj); err != nil {
			t.Errorf("%s: %v", key, err)
		}
		check.OK(t, unstructured.SetNestedField(obj.Object, "x", "spec", "misspelled"))
		if err := known.validate(t, obj); err == nil {
			t.Errorf("%s with an unknown field is valid", key)
		}
	}
}

// schemas is a directory of JSON schemas for kubeconform, one for each kind that was asked for.
type schemas struct {
	dir       string
	validator validator.Validator
	// kubernetes and certManager are where the modules of the manager's go.mod lie.
	kubernetes, certManager string
}

func newSchemas(t *testing.T) *schemas {
	t.Helper()
	dir := t.TempDir()
	v := check.Must(validator.New([]string{dir + "/{{ .Group }}-{{ .ResourceAPIVersion }}-{{ .ResourceKind }}.json"}, validator.Opts{Strict: true}))(t)
	return &schemas{
		dir: dir, validator: v,
		kubernetes: moduleDir(t, "k8s.io/kubernetes"), certManager: moduleDir(t, "github.com/cert-manager/cert-manager"),
	}
}

// validate has kubeconform look at an object, and Go's types at what the Prometheus operator
// reads: its module of types has no schemas.
func (s *schemas) validate(t *testing.T, obj *unstructured.Unstructured) error {
	t.Helper()
	content := check.Must(obj.MarshalJSON())(t)
	switch obj.GetKind() {
	case monitoringv1.ServiceMonitorsKind:
		return yaml.UnmarshalStrict(content, &monitoringv1.ServiceMonitor{})
	case monitoringv1.PodMonitorsKind:
		return yaml.UnmarshalStrict(content, &monitoringv1.PodMonitor{})
	case monitoringv1.PrometheusRuleKind:
		return yaml.UnmarshalStrict(content, &monitoringv1.PrometheusRule{})
	}
	s.write(t, obj.GroupVersionKind())
	return s.validator.ValidateResource(resource.Resource{Bytes: content}).Err
}

// write adds the schema of a kind.
func (s *schemas) write(t *testing.T, gvk schema.GroupVersionKind) {
	t.Helper()
	group := gvk.Group
	if group == "" {
		group = gvk.Version // as kubeconform has it
	}
	path := filepath.Join(s.dir, strings.ToLower(group+"-"+gvk.Version+"-"+gvk.Kind+".json"))
	if _, err := os.Stat(path); err == nil {
		return
	}
	var content any
	if gvk.Group == "cert-manager.io" {
		content = ofCRD(t, filepath.Join(s.certManager, "deploy/crds"), gvk)
	} else {
		content = ofOpenAPI(t, filepath.Join(s.kubernetes, "api/openapi-spec/v3"), gvk)
	}
	data := check.Must(json.Marshal(content))(t)
	check.OK(t, os.WriteFile(path, data, 0o600))
}

// ofOpenAPI takes the schema of a kind from what Kubernetes publishes of its group.
func ofOpenAPI(t *testing.T, dir string, gvk schema.GroupVersionKind) any {
	t.Helper()
	name := "apis__" + gvk.Group + "__" + gvk.Version + "_openapi.json"
	if gvk.Group == "" {
		name = "api__" + gvk.Version + "_openapi.json"
	}
	var document struct {
		Components struct {
			Schemas map[string]map[string]any `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal([]byte(check.File(t, filepath.Join(dir, name))), &document); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	of := []any{map[string]any{"group": gvk.Group, "version": gvk.Version, "kind": gvk.Kind}}
	root := ""
	for name, s := range document.Components.Schemas {
		strict(s)
		if cmp.Equal(s["x-kubernetes-group-version-kind"], any(of)) {
			root = name
		}
	}
	if root == "" {
		t.Fatalf("%s has no %s", name, gvk.Kind)
	}
	return map[string]any{
		"allOf":      []any{map[string]any{"$ref": "#/components/schemas/" + root}},
		"components": document.Components,
	}
}

// ofCRD takes it from a CustomResourceDefinition.
func ofCRD(t *testing.T, dir string, gvk schema.GroupVersionKind) any {
	t.Helper()
	var crd struct {
		Spec struct {
			Versions []struct {
				Name   string `json:"name"`
				Schema struct {
					OpenAPIV3Schema map[string]any `json:"openAPIV3Schema"`
				} `json:"schema"`
			} `json:"versions"`
		} `json:"spec"`
	}
	name := gvk.Group + "_" + strings.ToLower(gvk.Kind) + "s.yaml"
	if err := yaml.Unmarshal([]byte(check.File(t, filepath.Join(dir, name))), &crd); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	for _, version := range crd.Spec.Versions {
		if version.Name == gvk.Version {
			strict(version.Schema.OpenAPIV3Schema)
			return version.Schema.OpenAPIV3Schema
		}
	}
	t.Fatalf("No version %s of %s", gvk.Version, gvk.Kind)
	return nil
}

// strict has a schema refuse properties that it does not name.
func strict(s map[string]any) {
	properties, _ := s["properties"].(map[string]any)
	if _, open := s["additionalProperties"]; !open && len(properties) > 0 && s["x-kubernetes-preserve-unknown-fields"] != true {
		s["additionalProperties"] = false
	}
	for _, property := range properties {
		strict(property.(map[string]any))
	}
	for _, key := range []string{"items", "additionalProperties"} {
		if inner, ok := s[key].(map[string]any); ok {
			strict(inner)
		}
	}
}

// moduleDir is where a module of the manager's go.mod lies, after Go has brought it.
func moduleDir(t *testing.T, module string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", module)
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go mod download %s: %v", module, err)
	}
	var downloaded struct{ Dir string }
	check.OK(t, json.Unmarshal(out, &downloaded))
	return downloaded.Dir
}
