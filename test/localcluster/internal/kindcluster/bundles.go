// SPDX-License-Identifier: Apache-2.0

package kindcluster

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/build"
	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/cluster"
	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/manifests"
)

// controlPlane is label and taint of the node that the managers run on: fake nodes run nothing.
const controlPlane = "node-role.kubernetes.io/control-plane"

// bundle is one set of manifests of a module.
type bundle struct {
	name, module string
	source       manifests.Source
	// program of its Deployment; empty without one.
	program string
	adjust  func([]*unstructured.Unstructured) error
}

// bundles are what is installed as each project ships it. Trainer's own overlay pulls JobSet's
// manifests from the network, so its parts are put together here.
var bundles = []bundle{
	{name: "jobset", module: build.JobSetModule, program: build.JobSetManager, source: manifests.Source{Resources: []string{"config/default"}}},
	{name: "trainer", module: build.TrainerModule, program: build.TrainerManager, source: manifests.Source{
		Namespace: "kubeflow-system",
		Resources: []string{"manifests/overlays/manager/namespace.yaml", "manifests/base/crds", "manifests/base/manager", "manifests/base/rbac", "manifests/base/webhook"}}},
	{name: "runtimes", module: build.TrainerModule, adjust: manifests.ExplicitRetention, source: manifests.Source{
		Resources: []string{"manifests/overlays/runtimes"}}},
	{name: "data-cache", module: build.TrainerModule, source: manifests.Source{
		Namespace: cluster.JobsNamespace, Images: []string{"ghcr.io/kubeflow/trainer/dataset-initializer"},
		Resources: []string{"manifests/base/runtimes/data-cache", "manifests/overlays/data-cache/cluster_role.yaml",
			"manifests/overlays/data-cache/namespace-rbac"}}},
	{name: "autoscaler", module: build.AutoscalerModule, source: manifests.Source{
		Resources: []string{"config/crd/autoscaling.x-k8s.io_provisioningrequests.yaml"}}},
	{name: "kueue", module: build.KueueModule, program: "kueue", adjust: externalTrainJobs, source: manifests.Source{Resources: []string{"config/default"}}},
}

// deployment has the Deployment among objects run a program's image on the node of the managers,
// and ask for little CPU: all of them share two cores with the control plane.
func (c *Cluster) deployment(ctx context.Context, objects []*unstructured.Unstructured, program string) error {
	repository, tag, err := c.image(ctx, program)
	if err != nil {
		return err
	}
	return each(objects, "Deployment", func(obj *unstructured.Unstructured) error {
		pod := []string{"spec", "template", "spec"}
		containers, err := containersOf(obj)
		if err != nil {
			return err
		}
		container := containers[0].(map[string]any)
		container["image"], container["imagePullPolicy"] = repository+":"+tag, string(corev1.PullNever)
		if err := unstructured.SetNestedField(container, "50m", "resources", "requests", "cpu"); err != nil {
			return err
		}
		// An image of one file has no user but root to begin with.
		if err := unstructured.SetNestedField(container, int64(65532), "securityContext", "runAsUser"); err != nil {
			return err
		}
		for field, value := range map[string]any{
			"containers":   containers,
			"nodeSelector": map[string]any{controlPlane: ""},
			"tolerations":  []any{map[string]any{"key": controlPlane, "operator": "Exists"}},
		} {
			if err := unstructured.SetNestedField(obj.Object, value, append(pod, field)...); err != nil {
				return err
			}
		}
		return nil
	})
}

// rollOut has Deployments rolled out when a ConfigMap among the objects changes: what is read at
// the start of a process is not read again.
func rollOut(objects []*unstructured.Unstructured) error {
	hash := sha256.New()
	err := each(objects, "ConfigMap", func(obj *unstructured.Unstructured) error {
		return json.NewEncoder(hash).Encode(obj.Object["data"])
	})
	if err != nil {
		return err
	}
	return each(objects, "Deployment", func(obj *unstructured.Unstructured) error {
		return unstructured.SetNestedField(obj.Object, fmt.Sprintf("%x", hash.Sum(nil))[:12],
			"spec", "template", "metadata", "annotations", registry+"/configuration")
	})
}

func containersOf(obj *unstructured.Unstructured) ([]any, error) {
	containers, _, err := unstructured.NestedSlice(obj.Object, "spec", "template", "spec", "containers")
	if err == nil && len(containers) == 0 {
		err = fmt.Errorf("no containers")
	}
	return containers, err
}

func addArgs(obj *unstructured.Unstructured, args ...any) error {
	containers, err := containersOf(obj)
	if err != nil {
		return err
	}
	container := containers[0].(map[string]any)
	before, _ := container["args"].([]any)
	container["args"] = append(before, args...)
	return unstructured.SetNestedSlice(obj.Object, containers, "spec", "template", "spec", "containers")
}

// externalTrainJobs does to Kueue's configuration what docs/install.md asks for.
func externalTrainJobs(objects []*unstructured.Unstructured) error {
	const key = "controller_manager_config.yaml"
	return each(objects, "ConfigMap", func(obj *unstructured.Unstructured) error {
		text, found, err := unstructured.NestedString(obj.Object, "data", key)
		if err != nil || !found {
			return err
		}
		var config map[string]any
		if err := yaml.Unmarshal([]byte(text), &config); err != nil {
			return err
		}
		if err := cluster.ExternalTrainJobs(config); err != nil {
			return err
		}
		changed, err := yaml.Marshal(config)
		if err != nil {
			return err
		}
		return unstructured.SetNestedField(obj.Object, string(changed), "data", key)
	})
}
