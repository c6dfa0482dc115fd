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
	client.ObjectKey
	// file is the key of the configuration; empty for a component without one.
	file string
	// module tells the version; empty for this repository.
	module string
}

var (
	kueueConfigMap = configMap{client.ObjectKey{Namespace: "kueue-system", Name: "kueue-manager-config"},
		"controller_manager_config.yaml", build.KueueModule}
	kueueTrainerConfigMap = configMap{client.ObjectKey{Namespace: "kueue-trainer-system", Name: "kueue-trainer-config"},
		"configuration.yaml", ""}
)

// configMaps are those of this cluster, with the configurations that prepare wrote.
func (c *Cluster) configMaps(ctx context.Context) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for _, comp := range c.components() {
		own := comp.configMap
		if own.file == "" {
			continue
		}
		content, err := os.ReadFile(c.configFile(comp.name))
		if err != nil {
			return nil, err
		}
		labels := map[string]any{}
		if own.module != "" {
			module, err := c.module(ctx, own.module)
			if err != nil {
				return nil, err
			}
			labels[versionLabel] = module.Version
		}
		objects = append(objects, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{own.file: string(content)},
			"metadata": map[string]any{"name": own.Name, "namespace": own.Namespace, "labels": labels},
		}})
	}
	return objects, nil
}

// readConfigMap takes over what people wrote into the component's ConfigMap, if it has one.
func (c *Cluster) readConfigMap(ctx context.Context, comp component) error {
	if comp.configMap.file == "" {
		return nil
	}
	api, err := kube.NewClient(c.Kubeconfig())
	if err != nil {
		return err
	}
	var found corev1.ConfigMap
	if err := api.Get(ctx, comp.configMap.ObjectKey, &found); apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("reading ConfigMap %s: %w", comp.configMap.ObjectKey, err)
	}
	return writeFile(c.configFile(comp.name), []byte(found.Data[comp.configMap.file]))
}
