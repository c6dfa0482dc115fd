// SPDX-License-Identifier: Apache-2.0

package kindcluster

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/build"
	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/cluster"
	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/kube"
	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/manifests"
	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/nodes"
	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/stages"
)

//go:embed files/cluster.yaml
var clusterManifest []byte

// availableWithin is how long Deployments may take until all their pods are ready.
const availableWithin = 3 * time.Minute

// install applies everything, in an order that needs no second try: nobody's webhook is asked
// before it can answer.
func (c *Cluster) install(ctx context.Context, api *kube.Client) error {
	start := time.Now()
	objects, err := c.objects(ctx)
	if err != nil {
		return err
	}
	runtimes, rest := manifests.Partition(objects, manifests.Runtime)
	// Deployments before webhooks: Kueue's is asked about pods.
	webhooks, rest := manifests.Partition(rest, manifests.MutatingConfig, manifests.ValidatingConfig)
	if err := api.Install(ctx, rest); err != nil {
		return err
	}
	if err := api.ApplyAll(ctx, webhooks); err != nil {
		return err
	}
	if err := c.available(ctx, api, rest); err != nil {
		return err
	}
	c.done("JobSet, Trainer, Kueue", "available", start)
	start = time.Now()
	if err := errors.Join(c.makeGPUNode(ctx, api), otherDefaultClass(ctx, api)); err != nil {
		return err
	}
	made, err := cluster.MakeNodes(ctx, api, c.FakeNodes)
	if err != nil {
		return err
	}
	c.done(fmt.Sprintf("%d fake nodes", made), "ready", start)
	// Not before: Trainer's webhook is asked about them, whose Service may be slower than its pod.
	err = kube.WaitFor(ctx, availableWithin, "runtimes", func(ctx context.Context) error { return api.ApplyAll(ctx, runtimes) })
	if err != nil {
		return err
	}
	if err := c.installManager(ctx); err != nil {
		return err
	}
	return waitQueued(ctx, api)
}

// installManager installs kueue-trainer by its chart.
func (c *Cluster) installManager(ctx context.Context) error {
	start := time.Now()
	repository, tag, err := c.image(ctx, build.KueueTrainer)
	if err != nil {
		return err
	}
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
	if err := os.WriteFile(values, []byte(content), 0o644); err != nil {
		return err
	}
	err = c.run(ctx, "helm", "upgrade", "--install", build.KueueTrainer, "charts/kueue-trainer", "--kubeconfig", c.Kubeconfig(),
		"--namespace", "kueue-trainer-system", "--create-namespace", "--values", values, "--wait", "--timeout", "3m",
		// Specs may have scaled it.
		"--force-conflicts")
	if err != nil {
		return err
	}
	c.done(build.KueueTrainer, "installed", start)
	return nil
}

// waitQueued waits until a TrainJob with a queue may be made: the Service of the webhook that is asked
// may be slower than its pod.
func waitQueued(ctx context.Context, api *kube.Client) error {
	job := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob",
		"metadata": map[string]any{"generateName": "queued-", "namespace": corev1.NamespaceDefault, "labels": map[string]any{"kueue.x-k8s.io/queue-name": "queue"}},
		"spec":     map[string]any{"runtimeRef": map[string]any{"name": "torch-distributed"}},
	}}
	return kube.WaitFor(ctx, availableWithin, "the webhooks of TrainJobs", func(ctx context.Context) error {
		return api.Create(ctx, job.DeepCopy(), client.DryRunAll)
	})
}

// available waits until all pods of the Deployments among objects are there and ready.
func (c *Cluster) available(ctx context.Context, api *kube.Client, objects []*unstructured.Unstructured) error {
	deployments, _ := manifests.Partition(objects, "Deployment")
	return kube.WaitFor(ctx, availableWithin, "Deployments", func(ctx context.Context) error {
		for _, obj := range deployments {
			var d appsv1.Deployment
			if err := api.Get(ctx, client.ObjectKeyFromObject(obj), &d); err != nil {
				return err
			}
			if d.Status.ObservedGeneration < d.Generation || d.Status.UpdatedReplicas == 0 || d.Status.AvailableReplicas < d.Status.Replicas ||
				d.Status.UpdatedReplicas < d.Status.Replicas {
				return fmt.Errorf("%d of %d pods of Deployment %s are there", d.Status.AvailableReplicas, d.Status.Replicas, obj.GetName())
			}
		}
		return nil
	})
}

// makeGPUNode dresses kind's worker up.
func (c *Cluster) makeGPUNode(ctx context.Context, api *kube.Client) error {
	key := client.ObjectKey{Name: c.Name + "-worker"}
	return kube.WaitFor(ctx, availableWithin, "node "+key.Name, func(ctx context.Context) error {
		var node corev1.Node
		if err := api.Get(ctx, key, &node); err != nil {
			return err
		}
		before := node.DeepCopy()
		nodes.Kubelet(&node)
		status := node.Status.DeepCopy()
		if err := api.Patch(ctx, &node, client.MergeFrom(before)); err != nil {
			return err
		}
		before = node.DeepCopy()
		node.Status.Capacity, node.Status.Allocatable = status.Capacity, status.Allocatable
		return api.Status().Patch(ctx, &node, client.MergeFrom(before))
	})
}

// otherDefaultClass leaves the StorageClass of this cluster the only default.
func otherDefaultClass(ctx context.Context, api *kube.Client) error {
	class := &storagev1.StorageClass{}
	class.Name = "standard"
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"storageclass.kubernetes.io/is-default-class":null}}}`))
	return client.IgnoreNotFound(api.Patch(ctx, class, patch))
}

// objects renders what is applied.
func (c *Cluster) objects(ctx context.Context) ([]*unstructured.Unstructured, error) {
	all, err := c.ownObjects(ctx)
	if err != nil {
		return nil, err
	}
	for _, b := range bundles() {
		module, err := c.Builder.Module(ctx, build.ControlPlaneDir, b.Module)
		if err != nil {
			return nil, err
		}
		objects, err := b.Render(module, filepath.Join(c.Dir, "manifests"))
		if err == nil && b.Program != "" {
			err = errors.Join(c.deployment(ctx, objects, b.Program), rollOut(objects))
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", b.Name, err)
		}
		all = append(all, objects...)
	}
	return all, nil
}

// ownObjects are kwok, with its configuration, and what local clusters have.
func (c *Cluster) ownObjects(ctx context.Context) ([]*unstructured.Unstructured, error) {
	objects, err := manifests.Decode(clusterManifest)
	if err != nil {
		return nil, err
	}
	objects = append(objects, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"namespace": "kwok-system", "name": "kwok"},
		"data": map[string]any{"kwok.yaml": string(stages.KwokConfiguration)},
	}})
	own, err := cluster.OwnObjects()
	return append(objects, own...), errors.Join(err, c.deployment(ctx, objects, "kwok"), rollOut(objects))
}
