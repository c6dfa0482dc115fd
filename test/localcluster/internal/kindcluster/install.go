// SPDX-License-Identifier: Apache-2.0

package kindcluster

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kustomize "sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/yaml"

	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/attempt"
	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/build"
	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/cluster"
	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/kube"
	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/manifests"
	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/nodes"
)

//go:embed files/cluster.yaml
var clusterManifest []byte

// availableWithin is how long Deployments may take until all their pods are ready.
const availableWithin = 3 * time.Minute

// install applies everything, in an order that needs no second try: nobody's webhook is asked before it can answer.
func (c *Cluster) install(ctx context.Context, api *kube.Client) {
	start := time.Now()
	runtimes, rest := manifests.Partition(c.objects(ctx), manifests.Runtime)
	// Deployments before webhooks: Kueue's is asked about pods.
	webhooks, rest := manifests.Partition(rest, manifests.MutatingConfig, manifests.ValidatingConfig)
	api.Install(ctx, rest)
	api.ApplyAll(ctx, webhooks)
	waitAvailable(ctx, api, rest)
	c.Done("JobSet, Trainer, Kueue", "available", start)
	start = time.Now()
	c.makeGPUNode(ctx, api)
	leaveOneDefaultClass(ctx, api)
	made := cluster.MakeNodes(ctx, api, c.FakeNodes)
	c.Done(fmt.Sprintf("%d fake nodes", made), "ready", start)
	// Not before: Trainer's webhook is asked about them, whose Service may be slower than its pod.
	kube.WaitFor(ctx, availableWithin, "runtimes", func(ctx context.Context) { api.ApplyAll(ctx, runtimes) })
	c.installManager(ctx)
	waitQueued(ctx, api)
}

func (c *Cluster) installManager(ctx context.Context) {
	start := time.Now()
	repository, tag := c.image(ctx, build.KueueTrainer)
	values := filepath.Join(c.Dir, "values.yaml")
	content := fmt.Sprintf(`# The chart as it is, on the node of the managers.
image: {repository: %s, tag: %q}
nodeSelector: {%s: ""}
tolerations: [{key: %s, operator: Exists}]
# A rule for specs, as on the local control plane.
configuration:
  tolerationRules:
  - resources: [example.com/*]
    tolerations: [{key: example.com/npu, operator: Exists, effect: NoSchedule}]
`, repository, tag, controlPlane, controlPlane)
	attempt.Succeed(os.WriteFile(values, []byte(content), 0o644))
	attempt.Succeed(c.run(ctx, "helm", "upgrade", "--install", build.KueueTrainer, "charts/kueue-trainer", "--kubeconfig", c.Kubeconfig(),
		"--namespace", "kueue-trainer-system", "--create-namespace", "--values", values, "--wait", "--timeout", "3m",
		// Specs may have scaled it.
		"--force-conflicts"))
	c.Done(build.KueueTrainer, "installed", start)
}

// waitQueued waits until a TrainJob with a queue may be made: the Service of a webhook may be slower than its pod.
func waitQueued(ctx context.Context, api *kube.Client) {
	job := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob",
		"metadata": map[string]any{"generateName": "queued-", "namespace": corev1.NamespaceDefault, "labels": map[string]any{"kueue.x-k8s.io/queue-name": "queue"}},
		"spec":     map[string]any{"runtimeRef": map[string]any{"name": "torch-distributed"}},
	}}
	kube.WaitFor(ctx, availableWithin, "the webhooks of TrainJobs", func(ctx context.Context) {
		attempt.Succeed(api.Create(ctx, job.DeepCopy(), client.DryRunAll))
	})
}

func waitAvailable(ctx context.Context, api *kube.Client, objects []*unstructured.Unstructured) {
	deployments, _ := manifests.Partition(objects, "Deployment")
	kube.WaitFor(ctx, availableWithin, "Deployments", func(ctx context.Context) {
		for _, obj := range deployments {
			var d appsv1.Deployment
			attempt.Succeed(api.Get(ctx, client.ObjectKeyFromObject(obj), &d))
			if d.Status.ObservedGeneration < d.Generation || d.Status.UpdatedReplicas == 0 || d.Status.AvailableReplicas < d.Status.Replicas ||
				d.Status.UpdatedReplicas < d.Status.Replicas {
				attempt.Fail("%d of %d pods of Deployment %s are there", d.Status.AvailableReplicas, d.Status.Replicas, obj.GetName())
			}
		}
	})
}

func (c *Cluster) makeGPUNode(ctx context.Context, api *kube.Client) {
	key := client.ObjectKey{Name: c.Name + "-worker"}
	kube.WaitFor(ctx, availableWithin, "node "+key.Name, func(ctx context.Context) {
		var node corev1.Node
		attempt.Succeed(api.Get(ctx, key, &node))
		before := node.DeepCopy()
		nodes.Kubelet(&node)
		status := node.Status.DeepCopy()
		attempt.Succeed(api.Patch(ctx, &node, client.MergeFrom(before)))
		before = node.DeepCopy()
		node.Status.Capacity, node.Status.Allocatable = status.Capacity, status.Allocatable
		attempt.Succeed(api.Status().Patch(ctx, &node, client.MergeFrom(before)))
	})
}

func leaveOneDefaultClass(ctx context.Context, api *kube.Client) {
	class := &storagev1.StorageClass{}
	class.Name = "standard"
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"storageclass.kubernetes.io/is-default-class":null}}}`))
	attempt.Succeed(client.IgnoreNotFound(api.Patch(ctx, class, patch)))
}

func (c *Cluster) objects(ctx context.Context) []*unstructured.Unstructured {
	kwok := append(manifests.Decode(clusterManifest), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"namespace": "kwok-system", "name": "kwok"},
		"data": map[string]any{"kwok.yaml": string(nodes.KwokConfiguration)},
	}})
	c.deployment(ctx, kwok, "kwok")
	all := append(kwok, cluster.OwnObjects()...)
	for _, b := range bundles() {
		objects := b.Render(c.Module(ctx, build.ControlPlaneDir, b.Module), filepath.Join(c.Dir, "manifests"))
		if b.Program != "" {
			c.deployment(ctx, objects, b.Program)
		}
		all = append(all, objects...)
	}
	return all
}

// controlPlane is label and taint of the node that the managers run on: fake nodes run nothing.
const controlPlane = "node-role.kubernetes.io/control-plane"

// bundles are what is installed as each project ships it. Trainer's own overlay pulls JobSet's
// manifests from the network, so its parts are put together here.
func bundles() []cluster.Bundle {
	all := append(cluster.Shipped(),
		cluster.Bundle{Name: "jobset", Module: build.JobSetModule, Program: build.JobSetManager, Kustomization: kustomize.Kustomization{
			Resources: []string{"config/default"}}},
		cluster.Bundle{Name: "trainer", Module: build.TrainerModule, Program: build.TrainerManager, Kustomization: kustomize.Kustomization{
			Namespace: "kubeflow-system",
			Resources: []string{"manifests/overlays/manager/namespace.yaml", "manifests/base/crds", "manifests/base/manager", "manifests/base/rbac", "manifests/base/webhook"}}})
	for i := range all {
		if all[i].Name == "kueue" {
			all[i].Adjust = externalTrainJobs
		}
	}
	return all
}

// deployment has the Deployment among objects run a program's image on the node of the managers, and ask for little
// CPU: all of them share two cores with the control plane. It is rolled out when a ConfigMap among the objects changes:
// what is read at the start of a process is not read again.
func (c *Cluster) deployment(ctx context.Context, objects []*unstructured.Unstructured, program string) {
	repository, tag := c.image(ctx, program)
	hash := sha256.New()
	configs, _ := manifests.Partition(objects, "ConfigMap")
	for _, obj := range configs {
		attempt.Succeed(json.NewEncoder(hash).Encode(obj.Object["data"]))
	}
	edit(objects, "Deployment", func(d *appsv1.Deployment) {
		metav1.SetMetaDataAnnotation(&d.Spec.Template.ObjectMeta, registry+"/configuration", fmt.Sprintf("%x", hash.Sum(nil))[:12])
		pod := &d.Spec.Template.Spec
		if len(pod.Containers) == 0 {
			attempt.Fail("Deployment %s has no containers", d.Name)
		}
		pod.NodeSelector = map[string]string{controlPlane: ""}
		pod.Tolerations = []corev1.Toleration{{Key: controlPlane, Operator: corev1.TolerationOpExists}}
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
	})
}

// externalTrainJobs does to Kueue's configuration what docs/install.md asks for.
func externalTrainJobs(objects []*unstructured.Unstructured) {
	const key = "controller_manager_config.yaml"
	edit(objects, "ConfigMap", func(configMap *corev1.ConfigMap) {
		if configMap.Data[key] == "" {
			return
		}
		var config map[string]any
		attempt.Succeed(yaml.Unmarshal([]byte(configMap.Data[key]), &config))
		cluster.ExternalTrainJobs(config)
		configMap.Data[key] = string(attempt.Must(yaml.Marshal(config)))
	})
}

// edit applies a change to the objects of a kind, in its Go type.
func edit[T any](objects []*unstructured.Unstructured, kind string, change func(*T)) {
	those, _ := manifests.Partition(objects, kind)
	for _, obj := range those {
		typed := new(T)
		attempt.Succeed(runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, typed), "%s %s", kind, obj.GetName())
		change(typed)
		obj.Object = attempt.Must(runtime.DefaultUnstructuredConverter.ToUnstructured(typed))
	}
}
