// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/build"
	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/kube"
)

// versionLabel is where Helm charts, Kueue's too, say which release they install.
const versionLabel = "app.kubernetes.io/version"

// configMap is where a manager that runs in a pod has its configuration. People edit it
// there and restart the manager; the one of this cluster reads it too when it starts.
type configMap struct {
	namespace, name, key string
	// module tells the version; empty for this repository.
	module string
}

var (
	kueueConfigMap = configMap{namespace: "kueue-system", name: "kueue-manager-config",
		key: "controller_manager_config.yaml", module: build.KueueModule}
	kueueTrainerConfigMap = configMap{namespace: "kueue-trainer-system", name: "kueue-trainer-config",
		key: "configuration.yaml"}
)

// configMaps are those of this cluster, with the configurations that prepare wrote.
func (c *Cluster) configMaps(ctx context.Context) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for _, comp := range c.components() {
		if comp.configMap == (configMap{}) {
			continue
		}
		obj, err := c.configMapOf(ctx, comp)
		if err != nil {
			return nil, err
		}
		objects = append(objects, obj)
	}
	return objects, nil
}

func (c *Cluster) configMapOf(ctx context.Context, comp component) (*unstructured.Unstructured, error) {
	content, err := os.ReadFile(c.configFile(comp.name))
	if err != nil {
		return nil, err
	}
	labels := map[string]any{}
	if comp.configMap.module != "" {
		module, err := c.module(ctx, comp.configMap.module)
		if err != nil {
			return nil, err
		}
		labels[versionLabel] = module.Version
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{comp.configMap.key: string(content)},
		"metadata": map[string]any{"name": comp.configMap.name, "namespace": comp.configMap.namespace, "labels": labels},
	}}, nil
}

// readConfigMap takes over what people wrote into the component's ConfigMap, if it has one.
func (c *Cluster) readConfigMap(ctx context.Context, comp component) error {
	if comp.configMap == (configMap{}) {
		return nil
	}
	api, err := kube.NewClient(c.Kubeconfig())
	if err != nil {
		return err
	}
	var found corev1.ConfigMap
	key := client.ObjectKey{Namespace: comp.configMap.namespace, Name: comp.configMap.name}
	if err := api.Get(ctx, key, &found); apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("reading ConfigMap %s: %w", key, err)
	}
	return writeFile(c.configFile(comp.name), []byte(found.Data[comp.configMap.key]))
}
