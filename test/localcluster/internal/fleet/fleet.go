// SPDX-License-Identifier: Apache-2.0

// Package fleet is several local clusters whose manager hands TrainJobs to its workers by
// MultiKueue: how they come up and go down, and what connects them.
package fleet

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/onsi/gomega/gexec"
	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kustomize "sigs.k8s.io/kustomize/api/types"

	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/cluster"
	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/kube"
	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/manifests"
)

// Manager names the manager cluster, Workers the others: their directories, their contexts in
// the fleet's kubeconfig and, of the workers, their MultiKueueClusters and Secrets.
const Manager = "manager"

// Workers are as many as config/samples/multikueue has.
var Workers = []string{"worker1", "worker2"}

type member struct {
	*cluster.Cluster
	name     string
	settings cluster.Settings
}

// Fleet is a manager cluster and its workers.
type Fleet struct {
	repo, dir string
	out       io.Writer
	members   []member
}

// New returns the fleet in dir, with a choice for each cluster, the manager first. Without choices, as down needs
// it, its clusters are what they are.
func New(repo, dir string, out io.Writer, nodes int, choices ...string) (*Fleet, error) {
	names := append([]string{Manager}, Workers...)
	if len(choices) > 0 && len(choices) != len(names) {
		return nil, fmt.Errorf("FLEET_WORKERS=%s: must name %d, separated by a comma", strings.Join(choices[1:], ","), len(Workers))
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	f := &Fleet{repo: repo, dir: dir, out: out}
	for i, name := range names {
		c, err := cluster.New(repo, filepath.Join(dir, name), gexec.NewPrefixedWriter(fmt.Sprintf("%-8s ", name), out))
		if err != nil {
			return nil, err
		}
		m := member{Cluster: c, name: name, settings: cluster.Settings{Nodes: nodes, Dispatches: name == Manager}}
		if len(choices) > 0 {
			if err := of(name, choose(&m.settings, choices[i])); err != nil {
				return nil, err
			}
		}
		f.members = append(f.members, m)
	}
	return f, nil
}

// choose reads INTEGRATION or INTEGRATION:TRAINER.
func choose(settings *cluster.Settings, text string) error {
	integration, generation, _ := strings.Cut(text, ":")
	settings.Integration, settings.Trainer = cluster.Integration(integration), generation
	return settings.Validate()
}

// Up builds what is out of date, starts what is not running and connects the clusters.
func (f *Fleet) Up(ctx context.Context) error {
	start := time.Now()
	if err := f.build(ctx); err != nil {
		return err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	for _, m := range f.members {
		group.Go(func() error { return of(m.name, m.Up(groupCtx, m.settings)) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if err := f.connect(ctx); err != nil {
		return err
	}
	fmt.Fprintf(f.out, "fleet up in %s; the contexts %s, %s are in %s\n",
		time.Since(start).Round(100*time.Millisecond), Manager, strings.Join(Workers, ", "), f.kubeconfig())
	return nil
}

// build builds for one cluster after the other: their binaries lie in one place.
func (f *Fleet) build(ctx context.Context) error {
	built := map[cluster.Settings]bool{}
	for _, m := range f.members {
		alike := m.settings
		alike.Dispatches = false
		if !built[alike] {
			if err := m.Build(ctx, m.settings); err != nil {
				return err
			}
		}
		built[alike], m.Built = true, true
	}
	return nil
}

// Down stops all clusters, and removes what Up made beside them. One that cannot be stopped does not keep the others
// from it.
func (f *Fleet) Down(ctx context.Context) error {
	var failures error
	exists := false
	for _, m := range f.members {
		exists = exists || m.Exists()
		failures = errors.Join(failures, of(m.name, m.Down(ctx)))
	}
	// Where there is no fleet, these are somebody else's.
	if failures != nil || !exists {
		return failures
	}
	return errors.Join(os.RemoveAll(f.kubeconfig()), os.RemoveAll(f.manifests()))
}

// of says of which cluster an error is, if there is one.
func of(name string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func (f *Fleet) kubeconfig() string { return filepath.Join(f.dir, "kubeconfig") }
func (f *Fleet) manifests() string  { return filepath.Join(f.dir, "manifests") }

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
			return of(name, err)
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

func (f *Fleet) install(ctx context.Context, api *kube.Client, resources ...string) error {
	objects, err := manifests.Render(f.repo, kustomize.Kustomization{Resources: resources}, f.manifests())
	if err != nil {
		return err
	}
	return api.ApplyAll(ctx, objects)
}

func waitActive(ctx context.Context, api *kube.Client) error {
	return kube.WaitFor(ctx, connectedWithin, "MultiKueueClusters", func(ctx context.Context) error {
		for _, name := range Workers {
			cluster := &unstructured.Unstructured{}
			cluster.SetGroupVersionKind(schema.GroupVersionKind{Group: "kueue.x-k8s.io", Version: "v1beta2", Kind: "MultiKueueCluster"})
			if err := api.Get(ctx, client.ObjectKey{Name: name}, cluster); err != nil {
				return err
			}
			conditions, _, _ := unstructured.NestedSlice(cluster.Object, "status", "conditions")
			if !slices.ContainsFunc(conditions, func(condition any) bool {
				fields, _ := condition.(map[string]any)
				return fields["type"] == "Active" && fields["status"] == string(metav1.ConditionTrue)
			}) {
				return fmt.Errorf("%s is not active: %v", name, conditions)
			}
		}
		return nil
	})
}

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
