// SPDX-License-Identifier: Apache-2.0

// Package chart holds the tests of charts/kueue-trainer.
package chart

import (
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	ci "helm.sh/helm/v4/pkg/chart"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/kueue-trainer/kueue-trainer/release/internal/check"
)

const (
	chartPath = "../../charts/kueue-trainer"
	namespace = "kueue-trainer-system"
)

// objects are manifests by kind, namespace and name.
type objects map[string]*unstructured.Unstructured

func (o objects) add(t *testing.T, manifest string) {
	t.Helper()
	decoder := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(manifest), 4096)
	for {
		obj := &unstructured.Unstructured{}
		err := decoder.Decode(obj)
		if err == io.EOF {
			return
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, manifest)
		}
		if len(obj.Object) == 0 {
			continue
		}
		key := obj.GetKind() + " " + obj.GetNamespace() + "/" + obj.GetName()
		if o[key] != nil {
			t.Errorf("%s is there twice", key)
		}
		o[key] = obj
	}
}

func loadChart(t *testing.T) *chartv2.Chart {
	t.Helper()
	return check.Must(loader.Load(chartPath))(t)
}

// cluster has what the chart looks up.
type cluster struct{}

// GetClientFor implements engine.ClientProvider.
func (cluster) GetClientFor(_, kind string) (dynamic.NamespaceableResourceInterface, bool, error) {
	client := fake.NewSimpleDynamicClient(scheme.Scheme,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system"}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kueue-system"}},
		configurationIn("kueue-system"))
	return client.Resource(corev1.SchemeGroupVersion.WithResource(strings.ToLower(kind) + "s")), kind == "ConfigMap", nil
}

// configurationIn returns Kueue's ConfigMap, in a namespace.
func configurationIn(namespace string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "kueue-manager-config", Namespace: namespace},
		Data:       map[string]string{"controller_manager_config.yaml": ""},
	}
}

// rendering is what engine.Render is.
type rendering func(ci.Charter, common.Values) (map[string]string, error)

// installing renders as helm install does.
func installing(chart ci.Charter, values common.Values) (map[string]string, error) {
	return engine.RenderWithClientProvider(chart, values, cluster{})
}

// render renders the chart with values, as YAML, and without notes.
func render(t *testing.T, values string, how rendering) (objects, error) {
	t.Helper()
	given := map[string]any{}
	check.OK(t, yaml.Unmarshal([]byte(values), &given))
	chart := loadChart(t)
	release := common.ReleaseOptions{Name: "test", Namespace: namespace, IsInstall: true}
	capabilities := common.DefaultCapabilities.Copy()
	capabilities.APIVersions = append(capabilities.APIVersions, "trainer.kubeflow.org/v1alpha1", "jobset.x-k8s.io/v1alpha2", "kueue.x-k8s.io/v1beta2")
	all, err := util.ToRenderValues(chart, given, release, capabilities)
	if err != nil {
		return nil, err
	}
	files, err := how(chart, all)
	if err != nil {
		return nil, err
	}
	rendered := objects{}
	for name, content := range files {
		if strings.HasSuffix(name, ".yaml") {
			rendered.add(t, content)
		}
	}
	return rendered, nil
}

func mustRender(t *testing.T, values string) objects {
	t.Helper()
	return check.Must(render(t, values, installing))(t)
}

// kustomized builds config/default.
func kustomized(t *testing.T) objects {
	t.Helper()
	built := check.Must(krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), "../../config/default"))(t)
	manifest := check.Must(built.AsYaml())(t)
	out := objects{}
	out.add(t, string(manifest))
	return out
}

// comparable takes away what both ways name and label differently, and nothing else.
func comparable(all objects) map[string]any {
	out := map[string]any{}
	for key, obj := range all {
		if obj.GetKind() == "Namespace" || obj.GetAnnotations()["helm.sh/hook"] != "" {
			// Helm makes the first, or does not; kustomize knows no hooks.
			continue
		}
		obj = obj.DeepCopy()
		labels := obj.GetLabels()
		maps.DeleteFunc(labels, func(label, _ string) bool {
			return strings.HasPrefix(label, "app.kubernetes.io/") || label == "helm.sh/chart"
		})
		unstructured.RemoveNestedField(obj.Object, "metadata", "labels")
		if len(labels) > 0 {
			obj.SetLabels(labels)
		}
		// kustomize names a ConfigMap by its content, and its users after it.
		name, _, hashed := strings.Cut(obj.GetName(), "-config-")
		if obj.GetKind() == "ConfigMap" && hashed {
			key = "ConfigMap " + namespace + "/" + name + "-config"
			obj.SetName(name + "-config")
		}
		if obj.GetKind() == "ConfigMap" {
			normalizeConfiguration(obj)
		}
		if obj.GetKind() == "Deployment" {
			normalizeDeployment(obj)
		}
		webhooks, _, _ := unstructured.NestedSlice(obj.Object, "webhooks")
		for _, webhook := range webhooks {
			// What the API server takes by itself.
			if webhook.(map[string]any)["timeoutSeconds"] == int64(10) {
				delete(webhook.(map[string]any), "timeoutSeconds")
			}
		}
		if len(webhooks) > 0 {
			_ = unstructured.SetNestedSlice(obj.Object, webhooks, "webhooks")
		}
		out[key] = oneLine(obj.Object)
	}
	return out
}

// oneLine takes line breaks out of strings: kustomize folds long expressions in its own way.
func oneLine(value any) any {
	switch v := value.(type) {
	case string:
		return strings.Join(strings.Fields(v), " ")
	case map[string]any:
		for key := range v {
			v[key] = oneLine(v[key])
		}
	case []any:
		for i := range v {
			v[i] = oneLine(v[i])
		}
	}
	return value
}

// normalizeConfiguration compares what a configuration says, not its comments.
func normalizeConfiguration(obj *unstructured.Unstructured) {
	text, _, _ := unstructured.NestedString(obj.Object, "data", "configuration.yaml")
	var parsed map[string]any
	if err := yaml.Unmarshal([]byte(text), &parsed); err == nil {
		obj.Object["data"] = parsed
	}
}

func normalizeDeployment(obj *unstructured.Unstructured) {
	template, _, _ := unstructured.NestedMap(obj.Object, "spec", "template")
	unstructured.RemoveNestedField(template, "metadata", "annotations", "checksum/configuration")
	unstructured.SetNestedStringMap(template, map[string]string{"app.kubernetes.io/name": "kueue-trainer"}, "metadata", "labels")
	containers, _, _ := unstructured.NestedSlice(template, "spec", "containers")
	manager := containers[0].(map[string]any)
	delete(manager, "imagePullPolicy")
	manager["args"] = slices.DeleteFunc(manager["args"].([]any), func(arg any) bool { return strings.HasPrefix(arg.(string), "--zap-") })
	_ = unstructured.SetNestedSlice(template, containers, "spec", "containers")
	volumes, _, _ := unstructured.NestedSlice(template, "spec", "volumes")
	for _, volume := range volumes {
		if configMap, ok := volume.(map[string]any)["configMap"].(map[string]any); ok {
			configMap["name"] = "kueue-trainer-config"
		}
	}
	_ = unstructured.SetNestedSlice(template, volumes, "spec", "volumes")
	_ = unstructured.SetNestedMap(obj.Object, template, "spec", "template")
}

// The chart with its defaults and config/default install the same.
func TestDefaultsAreWhatKustomizeInstalls(t *testing.T) {
	check.Same(t, "chart, unlike config/default", comparable(kustomized(t)), comparable(mustRender(t, "")))
}
