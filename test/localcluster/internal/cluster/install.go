// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	_ "embed"
	"encoding/base64"
	"os"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"golang.org/x/sync/errgroup"

	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/build"
	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/kube"
	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/manifests"
)

// JobsNamespace is where the context user may create TrainJobs.
const JobsNamespace = "jobs"

//go:embed files/cluster.yaml
var clusterManifest []byte

// bundle is one set of manifests and the process that it is for.
type bundle struct {
	name string
	// module they come from; empty means this repository.
	module string
	source manifests.Source
	// component that stands in for the Deployment; empty means nothing is rewritten.
	component string
	// adjust changes what cannot be installed as it is shipped.
	adjust func([]*unstructured.Unstructured) error
}

// bundles are what is installed, from the places where each project keeps it. Trainer
// and JobSet are composed here because their own overlays pull from the network or
// need cert-manager; all their generations keep everything in the same places.
func bundles(settings Settings) []bundle {
	all := []bundle{
		{name: build.JobSetManager, module: build.JobSetModule, component: build.JobSetManager, source: manifests.Source{
			Namespace: "jobset-system", NamePrefix: "jobset-",
			Resources: []string{"config/components/crd", "config/components/rbac", "config/components/webhook"}}},
		{name: build.TrainerManager, module: build.TrainerModule, component: build.TrainerManager, source: manifests.Source{
			Namespace: "kubeflow-system",
			Resources: []string{"manifests/base/crds", "manifests/base/rbac", "manifests/base/webhook"}}},
		{name: "runtimes", module: build.TrainerModule, adjust: manifests.ExplicitRetention, source: manifests.Source{
			Resources: []string{"manifests/overlays/runtimes"}}},
		// The data cache has a runtime, and a ServiceAccount in the namespace of the jobs.
		{name: "data-cache", module: build.TrainerModule, source: manifests.Source{
			Namespace: JobsNamespace, Images: []string{"ghcr.io/kubeflow/trainer/dataset-initializer"},
			Resources: []string{"manifests/base/runtimes/data-cache", "manifests/overlays/data-cache/cluster_role.yaml",
				"manifests/overlays/data-cache/namespace-rbac"}}},
		// Kueue looks for it when it starts. Nobody here makes nodes for it: people and specs do.
		{name: "autoscaler", module: build.AutoscalerModule, source: manifests.Source{
			Resources: []string{"config/crd/autoscaling.x-k8s.io_provisioningrequests.yaml"}}},
		{name: "kueue", module: build.KueueModule, component: "kueue", source: manifests.Source{
			Resources: []string{"config/default"}}},
	}
	if settings.Integration.manager() {
		all = append(all, bundle{name: build.KueueTrainer, component: build.KueueTrainer, source: manifests.Source{
			Resources: []string{"config/rbac", "config/webhook", "config/policies"}}})
	}
	return all
}

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
// namespace for jobs, a StorageClass that binds, the permissions of context "user".
func OwnObjects() ([]*unstructured.Unstructured, error) { return manifests.Decode(clusterManifest) }

// installOwn applies what the cluster itself brings. It comes before the scheduler,
// which waits longer and longer between attempts while it has no permissions.
func installOwn(ctx context.Context, client *kube.Client) error {
	objects, err := OwnObjects()
	if err != nil {
		return err
	}
	first, rest := partition(objects, isBasis)
	if err := client.ApplyAll(ctx, first); err != nil {
		return err
	}
	return client.ApplyAll(ctx, rest)
}

func (c *Cluster) renderBundle(ctx context.Context, b bundle) ([]*unstructured.Unstructured, error) {
	b.source.Root = c.Builder.Repo
	if b.module != "" {
		module, err := c.module(ctx, b.module)
		if err != nil {
			return nil, err
		}
		b.source.Root, b.source.ImageTag = module.Dir, module.Version
	}
	objects, err := manifests.Render(b.source, c.path("manifests", b.name))
	if err != nil {
		return nil, err
	}
	if b.component != "" {
		if objects, err = c.retarget(objects, b); err != nil {
			return nil, err
		}
	}
	if b.adjust != nil {
		if err := b.adjust(objects); err != nil {
			return nil, err
		}
	}
	content, err := manifests.Encode(objects)
	if err != nil {
		return nil, err
	}
	return objects, writeFile(c.path("manifests", b.name+".yaml"), content)
}

func (c *Cluster) retarget(objects []*unstructured.Unstructured, b bundle) ([]*unstructured.Unstructured, error) {
	authority, err := os.ReadFile(c.path(authorityCertFile))
	if err != nil {
		return nil, err
	}
	return manifests.Retarget(objects, manifests.Target{
		User:       b.component,
		WebhookURL: "https://" + c.address(b.component, "webhook"),
		CABundle:   authority,
	})
}

// install applies the objects: first what others need to exist, then the rest.
func (c *Cluster) install(ctx context.Context, client *kube.Client, objects []*unstructured.Unstructured) error {
	secret, err := c.kueueSecret()
	if err != nil {
		return err
	}
	configs, err := c.configMaps(ctx)
	if err != nil {
		return err
	}
	objects = append(append(objects, secret), configs...)
	first, rest := partition(withNamespaces(objects), isBasis)
	if err := client.ApplyAll(ctx, first); err != nil {
		return err
	}
	if err := client.WaitEstablished(ctx, namesOf(first, manifests.CRD)); err != nil {
		return err
	}
	return client.ApplyAll(ctx, rest)
}

// isBasis tells whether other objects may need this one to exist.
func isBasis(obj *unstructured.Unstructured) bool {
	return obj.GetKind() == manifests.CRD || obj.GetKind() == manifests.Namespace
}

// isRuntime tells whether Trainer's webhook may be asked about an object. Trainer 2.3
// exempts the runtimes that it ships, by a label; earlier ones do not.
func isRuntime(obj *unstructured.Unstructured) bool { return obj.GetKind() == manifests.Runtime }

// partition separates the objects that satisfy is from the others.
func partition(objects []*unstructured.Unstructured, is func(*unstructured.Unstructured) bool) (those, others []*unstructured.Unstructured) {
	for _, obj := range objects {
		if is(obj) {
			those = append(those, obj)
		} else {
			others = append(others, obj)
		}
	}
	return those, others
}

// withNamespaces adds the namespaces that objects are in but no manifest makes.
func withNamespaces(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	known := namesOf(objects, manifests.Namespace)
	// These are there already.
	known = append(known, metav1.NamespaceSystem, JobsNamespace)
	for _, obj := range slices.Clone(objects) {
		name := obj.GetNamespace()
		if name == "" || slices.Contains(known, name) {
			continue
		}
		known = append(known, name)
		namespace := &unstructured.Unstructured{}
		namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(manifests.Namespace))
		namespace.SetName(name)
		objects = append(objects, namespace)
	}
	return objects
}

func namesOf(objects []*unstructured.Unstructured, kind string) []string {
	var names []string
	for _, obj := range objects {
		if obj.GetKind() == kind {
			names = append(names, obj.GetName())
		}
	}
	return names
}

// kueueCAName must be a name of the authority, else Kueue's certificate management
// replaces it.
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
