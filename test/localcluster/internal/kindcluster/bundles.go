// SPDX-License-Identifier: Apache-2.0

package kindcluster

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/build"
	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/cluster"
	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/manifests"
)

// controlPlane is label and taint of the node that the managers run on: fake nodes run nothing.
const controlPlane = "node-role.kubernetes.io/control-plane"

// bundles are what is installed as each project ships it. Trainer's own overlay pulls JobSet's
// manifests from the network, so its parts are put together here.
func bundles() []cluster.Bundle {
	all := append(cluster.Shipped(),
		cluster.Bundle{Name: "jobset", Module: build.JobSetModule, Program: build.JobSetManager, Source: manifests.Source{
			Resources: []string{"config/default"}}},
		cluster.Bundle{Name: "trainer", Module: build.TrainerModule, Program: build.TrainerManager, Source: manifests.Source{
			Namespace: "kubeflow-system",
			Resources: []string{"manifests/overlays/manager/namespace.yaml", "manifests/base/crds", "manifests/base/manager", "manifests/base/rbac", "manifests/base/webhook"}}})
	for i := range all {
		if all[i].Name == "kueue" {
			all[i].Adjust = externalTrainJobs
		}
	}
	return all
}

// deployment has the Deployment among objects run a program's image on the node of the managers,
// and ask for little CPU: all of them share two cores with the control plane.
func (c *Cluster) deployment(ctx context.Context, objects []*unstructured.Unstructured, program string) error {
	repository, tag, err := c.image(ctx, program)
	if err != nil {
		return err
	}
	return edit(objects, "Deployment", func(d *appsv1.Deployment) error {
		pod := &d.Spec.Template.Spec
		pod.NodeSelector = map[string]string{controlPlane: ""}
		pod.Tolerations = []corev1.Toleration{{Key: controlPlane, Operator: corev1.TolerationOpExists}}
		if len(pod.Containers) == 0 {
			return errors.New("no containers")
		}
		container := &pod.Containers[0]
		container.Image, container.ImagePullPolicy = repository+":"+tag, corev1.PullNever
		if container.Resources.Requests == nil {
			container.Resources.Requests = corev1.ResourceList{}
		}
		container.Resources.Requests[corev1.ResourceCPU] = resource.MustParse("50m")
		if container.SecurityContext == nil {
			container.SecurityContext = &corev1.SecurityContext{}
		}
		// An image of one file has no user but root to begin with.
		container.SecurityContext.RunAsUser = ptr.To[int64](65532)
		return nil
	})
}

// rollOut has Deployments rolled out when a ConfigMap among the objects changes: what is read at
// the start of a process is not read again.
func rollOut(objects []*unstructured.Unstructured) error {
	hash := sha256.New()
	configs, _ := manifests.Partition(objects, "ConfigMap")
	for _, obj := range configs {
		if err := json.NewEncoder(hash).Encode(obj.Object["data"]); err != nil {
			return err
		}
	}
	return edit(objects, "Deployment", func(d *appsv1.Deployment) error {
		metav1.SetMetaDataAnnotation(&d.Spec.Template.ObjectMeta, registry+"/configuration", fmt.Sprintf("%x", hash.Sum(nil))[:12])
		return nil
	})
}

// externalTrainJobs does to Kueue's configuration what docs/install.md asks for.
func externalTrainJobs(objects []*unstructured.Unstructured) error {
	const key = "controller_manager_config.yaml"
	return edit(objects, "ConfigMap", func(configMap *corev1.ConfigMap) error {
		if configMap.Data[key] == "" {
			return nil
		}
		var config map[string]any
		if err := yaml.Unmarshal([]byte(configMap.Data[key]), &config); err != nil {
			return err
		}
		if err := cluster.ExternalTrainJobs(config); err != nil {
			return err
		}
		changed, err := yaml.Marshal(config)
		configMap.Data[key] = string(changed)
		return err
	})
}

// edit applies a change to the objects of a kind, in its Go type.
func edit[T any](objects []*unstructured.Unstructured, kind string, change func(*T) error) error {
	those, _ := manifests.Partition(objects, kind)
	for _, obj := range those {
		typed := new(T)
		err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, typed)
		if err == nil {
			err = change(typed)
		}
		if err == nil {
			obj.Object, err = runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
		}
		if err != nil {
			return fmt.Errorf("%s %s: %w", kind, obj.GetName(), err)
		}
	}
	return nil
}
