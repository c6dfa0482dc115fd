// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/kustomize/api/types"

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
	Adjust func([]*unstructured.Unstructured) error
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
func (b Bundle) Render(module build.Module, dir string) ([]*unstructured.Unstructured, error) {
	for i := range b.Images {
		b.Images[i].NewTag = module.Version
	}
	objects, err := manifests.Render(module.Dir, b.Kustomization, filepath.Join(dir, b.Name))
	if err == nil && b.Adjust != nil {
		err = b.Adjust(objects)
	}
	return objects, err
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

// render makes the objects of all bundles. It needs no cluster and takes a while, so it
// runs while etcd and the API server start.
func (c *Cluster) render(ctx context.Context) ([]*unstructured.Unstructured, error) {
	all := bundles(c.state.Settings)
	rendered := make([][]*unstructured.Unstructured, len(all))
	group, ctx := errgroup.WithContext(ctx)
	for i, b := range all {
		group.Go(func() (err error) {
			rendered[i], err = c.renderBundle(ctx, b)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return slices.Concat(rendered...), nil
}

// OwnObjects are what a cluster for the specs has besides the projects' own manifests: the
// namespace for jobs, a StorageClass that binds, the permissions of context "user". They come before the scheduler,
// which waits longer and longer between attempts while it has no permissions.
func OwnObjects() []*unstructured.Unstructured { return manifests.MustDecode(clusterManifest) }

func (c *Cluster) renderBundle(ctx context.Context, b Bundle) ([]*unstructured.Unstructured, error) {
	module, err := build.Module{Dir: c.Builder.Repo}, error(nil)
	if b.Module != "" {
		module, err = c.module(ctx, b.Module)
	}
	if err != nil {
		return nil, err
	}
	objects, err := b.Render(module, c.path("manifests"))
	if err != nil || b.Program == "" {
		return objects, err
	}
	authority, err := os.ReadFile(c.path(authorityCertFile))
	if err != nil {
		return nil, err
	}
	return manifests.Retarget(objects, manifests.Target{
		User: b.Program, WebhookURL: "https://" + c.address(b.Program, "webhook"), CABundle: authority})
}

func (c *Cluster) install(ctx context.Context, client *kube.Client, objects []*unstructured.Unstructured) error {
	secret, errSecret := c.kueueSecret()
	configs, errConfigs := c.configMaps(ctx)
	if err := errors.Join(errSecret, errConfigs); err != nil {
		return err
	}
	return client.Install(ctx, withNamespaces(append(append(objects, secret), configs...)))
}

// withNamespaces adds the namespaces that objects are in but no manifest makes.
func withNamespaces(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	used := sets.New[string]()
	for _, obj := range objects {
		used.Insert(obj.GetNamespace())
	}
	// Of cluster-wide objects, and two that are there already.
	used.Delete("", metav1.NamespaceSystem, JobsNamespace)
	for name := range used.Delete(manifests.NamesOf(objects, manifests.Namespace)...) {
		namespace := &unstructured.Unstructured{}
		namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(manifests.Namespace))
		namespace.SetName(name)
		objects = append(objects, namespace)
	}
	return objects
}

// kueueCAName must be a name of the authority, else Kueue's certificate management replaces it.
const kueueCAName = "kueue-ca"

// kueueSecret is where Kueue's certificate management keeps its certificates. Filled
// with those of this cluster it leaves everything as it is.
func (c *Cluster) kueueSecret() (*unstructured.Unstructured, error) {
	data := map[string]any{}
	for key, path := range map[string]string{
		"ca.crt": c.path(authorityCertFile), "ca.key": c.path(authorityKeyFile),
		"tls.crt": c.certFile("kueue"), "tls.key": c.keyFile("kueue"),
	} {
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		data[key] = base64.StdEncoding.EncodeToString(content)
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": data,
		"metadata": map[string]any{"name": "kueue-webhook-server-cert", "namespace": "kueue-system"},
	}}, nil
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
