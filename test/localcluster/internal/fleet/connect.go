// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/kube"
	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/manifests"
)

const (
	kueueNamespace = "kueue-system"
	// account is whom config/multikueue gives the permissions to.
	account = "multikueue"
	// tokenLifetime is longer than any fleet lives.
	tokenLifetime = 30 * 24 * time.Hour
	// connectedWithin is how long the manager cluster may take to reach its workers.
	connectedWithin = 3 * time.Minute
)

// connect installs in each cluster what docs/multikueue.md has an admin install.
func (f *Fleet) connect(ctx context.Context) error {
	if err := f.mergeKubeconfigs(); err != nil {
		return err
	}
	api, err := f.api(Manager)
	if err != nil {
		return err
	}
	for _, name := range Workers {
		secret, err := f.connectWorker(ctx, name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := api.ApplyAll(ctx, []*unstructured.Unstructured{secret}); err != nil {
			return err
		}
	}
	if err := f.install(ctx, api, "config/samples/multikueue"); err != nil {
		return err
	}
	return waitActive(ctx, api)
}

func (f *Fleet) api(name string) (*kube.Client, error) {
	return kube.NewClient(filepath.Join(f.dir, name, "kubeconfig"))
}

// connectWorker installs permissions and queues in a worker, and returns the Secret with which
// the manager cluster reaches it.
func (f *Fleet) connectWorker(ctx context.Context, name string) (*unstructured.Unstructured, error) {
	api, err := f.api(name)
	if err != nil {
		return nil, err
	}
	if err := f.install(ctx, api, "config/multikueue", "config/samples/flavors.yaml", "config/samples/queues.yaml"); err != nil {
		return nil, err
	}
	token := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: ptr.To(int64(tokenLifetime / time.Second))}}
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: kueueNamespace, Name: account}}
	if err := api.SubResource("token").Create(ctx, sa, token); err != nil {
		return nil, fmt.Errorf("failed to get a token of ServiceAccount %s: %w", account, err)
	}
	config := clientcmdapi.NewConfig()
	config.CurrentContext = name
	if err := f.addContext(config, name, token.Status.Token); err != nil {
		return nil, err
	}
	content, err := clientcmd.Write(*config)
	if err != nil {
		return nil, err
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"namespace": kueueNamespace, "name": name},
		"data": map[string]any{"kubeconfig": base64.StdEncoding.EncodeToString(content)},
	}}, nil
}

// install applies directories and files of this repository.
func (f *Fleet) install(ctx context.Context, api *kube.Client, resources ...string) error {
	objects, err := manifests.Render(manifests.Source{Root: f.repo, Resources: resources}, filepath.Join(f.dir, "manifests"))
	if err != nil {
		return err
	}
	return api.ApplyAll(ctx, objects)
}

// waitActive waits until the manager cluster has reached every worker.
func waitActive(ctx context.Context, api *kube.Client) error {
	return kube.WaitFor(ctx, connectedWithin, "MultiKueueClusters", func(ctx context.Context) error {
		for _, name := range Workers {
			cluster := &unstructured.Unstructured{}
			cluster.SetGroupVersionKind(schema.GroupVersionKind{Group: "kueue.x-k8s.io", Version: "v1beta2", Kind: "MultiKueueCluster"})
			if err := api.Get(ctx, client.ObjectKey{Name: name}, cluster); err != nil {
				return err
			}
			conditions, _, _ := unstructured.NestedSlice(cluster.Object, "status", "conditions")
			if !slices.ContainsFunc(conditions, active) {
				return fmt.Errorf("%s is not active: %v", name, conditions)
			}
		}
		return nil
	})
}

func active(condition any) bool {
	fields, _ := condition.(map[string]any)
	return fields["type"] == "Active" && fields["status"] == string(metav1.ConditionTrue)
}

// mergeKubeconfigs writes the fleet's.
func (f *Fleet) mergeKubeconfigs() error {
	merged := clientcmdapi.NewConfig()
	merged.CurrentContext = Manager
	for _, m := range f.members {
		if err := f.addContext(merged, m.name, ""); err != nil {
			return err
		}
	}
	return clientcmd.WriteToFile(*merged, f.kubeconfig())
}

// addContext adds a context for one cluster, of its name, for whom a token is of; empty is the admin.
func (f *Fleet) addContext(config *clientcmdapi.Config, name, token string) error {
	own, err := clientcmd.LoadFromFile(filepath.Join(f.dir, name, "kubeconfig"))
	if err != nil {
		return err
	}
	context := own.Contexts["admin"]
	c := own.Clusters[context.Cluster]
	config.Clusters[name] = &clientcmdapi.Cluster{Server: c.Server, CertificateAuthorityData: c.CertificateAuthorityData}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: cmp.Or(token, own.AuthInfos[context.AuthInfo].Token)}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	return nil
}
