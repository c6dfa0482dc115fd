// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	_ "embed"
	"encoding/base64"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/kustomize/api/types"

	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/attempt"
	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/build"
	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/kube"
	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/manifests"
)

// JobsNamespace is where the context user may create TrainJobs.
const JobsNamespace = "jobs"

//go:embed files/cluster.yaml
var clusterManifest []byte

// Bundle is one set of manifests.
type Bundle struct {
	Name string
	// Module they come from; empty means this repository.
	Module string
	types.Kustomization
	// Program of its Deployment, which a process stands in for here; empty without one.
	Program string
	// Adjust changes what cannot be installed as it is shipped.
	Adjust func([]*unstructured.Unstructured)
}

// Shipped are what is installed as its project ships it.
func Shipped() []Bundle {
	return []Bundle{
		{Name: "runtimes", Module: build.TrainerModule, Adjust: manifests.ExplicitRetention, Kustomization: types.Kustomization{
			Resources: []string{"manifests/overlays/runtimes"}}},
		// The data cache has a runtime, and a ServiceAccount in the namespace of the jobs.
		{Name: "data-cache", Module: build.TrainerModule, Kustomization: types.Kustomization{
			Namespace: JobsNamespace, Images: []types.Image{{Name: "ghcr.io/kubeflow/trainer/dataset-initializer"}},
			Resources: []string{"manifests/base/runtimes/data-cache", "manifests/overlays/data-cache/cluster_role.yaml",
				"manifests/overlays/data-cache/namespace-rbac"}}},
		// Kueue looks for it when it starts. Nobody here makes nodes for it: people and specs do.
		{Name: "autoscaler", Module: build.AutoscalerModule, Kustomization: types.Kustomization{
			Resources: []string{"config/crd/autoscaling.x-k8s.io_provisioningrequests.yaml"}}},
		{Name: "kueue", Module: build.KueueModule, Program: "kueue", Kustomization: types.Kustomization{
			Resources: []string{"config/default"}}},
	}
}

// Render makes the objects of a bundle from the source of its module, by an overlay in dir. Its images come without a tag.
func (b Bundle) Render(module build.Module, dir string) []*unstructured.Unstructured {
	for i := range b.Images {
		b.Images[i].NewTag = module.Version
	}
	objects := manifests.Render(module.Dir, b.Kustomization, filepath.Join(dir, b.Name))
	if b.Adjust != nil {
		b.Adjust(objects)
	}
	return objects
}

// bundles are what is installed, from the places where each project keeps it. Trainer
// and JobSet are composed here because their own overlays pull from the network or
// need cert-manager; all their generations keep everything in the same places.
func bundles(settings Settings) []Bundle {
	all := append(Shipped(),
		Bundle{Name: build.JobSetManager, Module: build.JobSetModule, Program: build.JobSetManager, Kustomization: types.Kustomization{
			Namespace: "jobset-system", NamePrefix: "jobset-",
			Resources: []string{"config/components/crd", "config/components/rbac", "config/components/webhook"}}},
		Bundle{Name: build.TrainerManager, Module: build.TrainerModule, Program: build.TrainerManager, Kustomization: types.Kustomization{
			Namespace: "kubeflow-system",
			Resources: []string{"manifests/base/crds", "manifests/base/rbac", "manifests/base/webhook"}}})
	if settings.Integration.manager() {
		all = append(all, ourBundle)
	}
	return all
}

var ourBundle = Bundle{Name: build.KueueTrainer, Program: build.KueueTrainer, Kustomization: types.Kustomization{
	Resources: []string{"config/rbac", "config/webhook", "config/policies"}}}

// render makes the objects of all bundles. It needs no cluster and takes a while.
func (c *Cluster) render(ctx context.Context) []*unstructured.Unstructured {
	all := bundles(c.state.Settings)
	rendered := make([][]*unstructured.Unstructured, len(all))
	group, ctx := errgroup.WithContext(ctx)
	for i, b := range all {
		group.Go(func() error { return attempt.To(func() { rendered[i] = c.renderBundle(ctx, b) }) })
	}
	attempt.Succeed(group.Wait())
	return slices.Concat(rendered...)
}

// OwnObjects are what a cluster for the specs has besides the projects' own manifests: the
// namespace for jobs, a StorageClass that binds, the permissions of context "user". They come before the scheduler,
// which waits longer and longer between attempts while it has no permissions.
func OwnObjects() []*unstructured.Unstructured { return manifests.Decode(clusterManifest) }

func (c *Cluster) renderBundle(ctx context.Context, b Bundle) []*unstructured.Unstructured {
	module := build.Module{Dir: c.Repo}
	if b.Module != "" {
		module = c.module(ctx, b.Module)
	}
	objects := b.Render(module, c.path("manifests"))
	if b.Program == "" {
		return objects
	}
	return manifests.Retarget(objects, manifests.Target{
		User: b.Program, WebhookURL: "https://" + c.address(b.Program, "webhook"), CABundle: attempt.Must(os.ReadFile(c.path(authorityCertFile)))})
}

// withNamespaces adds the namespaces that objects are in but no manifest makes.
func withNamespaces(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	missing := sets.New[string]()
	for _, obj := range objects {
		missing.Insert(obj.GetNamespace())
	}
	// Of cluster-wide objects, and two that are there already.
	missing.Delete("", metav1.NamespaceSystem, JobsNamespace)
	made, _ := manifests.Partition(objects, manifests.Namespace)
	for _, namespace := range made {
		missing.Delete(namespace.GetName())
	}
	for name := range missing {
		namespace := &unstructured.Unstructured{}
		namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(manifests.Namespace))
		namespace.SetName(name)
		objects = append(objects, namespace)
	}
	return objects
}

// kueueCAName must be a name of the authority, else Kueue's certificate management replaces it.
const kueueCAName = "kueue-ca"

// kueueSecret is where Kueue keeps its certificates. Filled with those of this cluster it leaves everything as it is.
func (c *Cluster) kueueSecret() *unstructured.Unstructured {
	data := map[string]any{}
	for key, path := range map[string]string{
		"ca.crt": c.path(authorityCertFile), "ca.key": c.path(authorityKeyFile),
		"tls.crt": c.certFile("kueue"), "tls.key": c.keyFile("kueue"),
	} {
		data[key] = base64.StdEncoding.EncodeToString(attempt.Must(os.ReadFile(path)))
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": data,
		"metadata": map[string]any{"name": "kueue-webhook-server-cert", "namespace": "kueue-system"},
	}}
}

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
	kueueConfigMap        = configMap{client.ObjectKey{Namespace: "kueue-system", Name: "kueue-manager-config"}, "controller_manager_config.yaml", build.KueueModule}
	kueueTrainerConfigMap = configMap{client.ObjectKey{Namespace: "kueue-trainer-system", Name: "kueue-trainer-config"}, "configuration.yaml", ""}
)

// configMaps are those of this cluster, with the configurations that prepare wrote.
func (c *Cluster) configMaps(ctx context.Context) (objects []*unstructured.Unstructured) {
	for _, comp := range c.components() {
		own := comp.configMap
		if own.file == "" {
			continue
		}
		content := attempt.Must(os.ReadFile(c.configFile(comp.name)))
		labels := map[string]any{}
		if own.module != "" {
			labels[versionLabel] = c.module(ctx, own.module).Version
		}
		objects = append(objects, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{own.file: string(content)},
			"metadata": map[string]any{"name": own.Name, "namespace": own.Namespace, "labels": labels},
		}})
	}
	return objects
}

// readConfigMap takes over what people wrote into the component's ConfigMap, if it has one.
func (c *Cluster) readConfigMap(ctx context.Context, comp component) {
	if comp.configMap.file == "" {
		return
	}
	var found corev1.ConfigMap
	err := kube.NewClient(c.Kubeconfig()).Get(ctx, comp.configMap.ObjectKey, &found)
	attempt.Succeed(client.IgnoreNotFound(err), "reading ConfigMap %s", comp.configMap.ObjectKey)
	if err == nil {
		writeFile(c.configFile(comp.name), []byte(found.Data[comp.configMap.file]))
	}
}
