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

	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/attempt"
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
func New(repo, dir string, out io.Writer, nodes int, choices ...string) *Fleet {
	names := append([]string{Manager}, Workers...)
	if len(choices) > 0 && len(choices) != len(names) {
		attempt.Fail("FLEET_WORKERS=%s: must name %d, separated by a comma", strings.Join(choices[1:], ","), len(Workers))
	}
	f := &Fleet{repo: repo, dir: attempt.Must(filepath.Abs(dir)), out: out}
	for i, name := range names {
		m := member{name: name, settings: cluster.Settings{Nodes: nodes, Dispatches: name == Manager}}
		m.Cluster = cluster.New(repo, filepath.Join(f.dir, name), gexec.NewPrefixedWriter(fmt.Sprintf("%-8s ", name), out))
		if len(choices) > 0 {
			// INTEGRATION or INTEGRATION:TRAINER.
			integration, generation, _ := strings.Cut(choices[i], ":")
			m.settings.Integration, m.settings.Trainer = cluster.Integration(integration), generation
			attempt.Succeed(m.settings.Validate(), "%s", name)
		}
		f.members = append(f.members, m)
	}
	return f
}

// Up builds what is out of date, starts what is not running and connects the clusters.
func (f *Fleet) Up(ctx context.Context) {
	start := time.Now()
	f.build(ctx)
	attempt.ForEach(ctx, f.members, func(ctx context.Context, m member) {
		attempt.Succeed(attempt.To(func() { m.Up(ctx, m.settings) }), "%s", m.name)
	})
	f.connect(ctx)
	fmt.Fprintf(f.out, "fleet up in %s; the contexts %s, %s are in %s\n",
		time.Since(start).Round(100*time.Millisecond), Manager, strings.Join(Workers, ", "), f.kubeconfig())
}

// build builds for one cluster after the other: their binaries lie in one place.
func (f *Fleet) build(ctx context.Context) {
	built := map[cluster.Settings]bool{}
	for _, m := range f.members {
		alike := m.settings
		alike.Dispatches = false
		if !built[alike] {
			m.Build(ctx, m.settings)
		}
		built[alike], m.Built = true, true
	}
}

// Down stops all clusters that it can, and removes what Up made beside them.
func (f *Fleet) Down(ctx context.Context) {
	var failures error
	exists := false
	for _, m := range f.members {
		exists = exists || m.Exists()
		if err := attempt.To(func() { m.Down(ctx) }); err != nil {
			failures = errors.Join(failures, fmt.Errorf("%s: %w", m.name, err))
		}
	}
	attempt.Succeed(failures)
	// Where there is no fleet, these are somebody else's.
	if exists {
		attempt.Succeed(errors.Join(os.RemoveAll(f.kubeconfig()), os.RemoveAll(f.manifests())))
	}
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
func (f *Fleet) connect(ctx context.Context) {
	f.mergeKubeconfigs()
	api := f.api(Manager)
	for _, name := range Workers {
		connect := func() { api.ApplyAll(ctx, []*unstructured.Unstructured{f.connectWorker(ctx, name)}) }
		attempt.Succeed(attempt.To(connect), "%s", name)
	}
	f.install(ctx, api, "config/samples/multikueue")
	waitActive(ctx, api)
}

func (f *Fleet) api(name string) *kube.Client {
	return kube.NewClient(filepath.Join(f.dir, name, "kubeconfig"))
}

// connectWorker installs permissions and queues in a worker, and returns the Secret by which the manager cluster reaches it.
func (f *Fleet) connectWorker(ctx context.Context, name string) *unstructured.Unstructured {
	api := f.api(name)
	f.install(ctx, api, "config/multikueue", "config/samples/flavors.yaml", "config/samples/queues.yaml")
	token := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: ptr.To(int64(tokenLifetime / time.Second))}}
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: kueueNamespace, Name: account}}
	attempt.Succeed(api.SubResource("token").Create(ctx, sa, token), "failed to get a token of ServiceAccount %s", account)
	config := clientcmdapi.NewConfig()
	config.CurrentContext = name
	f.addContext(config, name, token.Status.Token)
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"namespace": kueueNamespace, "name": name},
		"data": map[string]any{"kubeconfig": base64.StdEncoding.EncodeToString(attempt.Must(clientcmd.Write(*config)))},
	}}
}

func (f *Fleet) install(ctx context.Context, api *kube.Client, resources ...string) {
	api.ApplyAll(ctx, manifests.Render(f.repo, kustomize.Kustomization{Resources: resources}, f.manifests()))
}

func waitActive(ctx context.Context, api *kube.Client) {
	kube.WaitFor(ctx, connectedWithin, "MultiKueueClusters", func(ctx context.Context) {
		for _, name := range Workers {
			cluster := &unstructured.Unstructured{}
			cluster.SetGroupVersionKind(schema.GroupVersionKind{Group: "kueue.x-k8s.io", Version: "v1beta2", Kind: "MultiKueueCluster"})
			attempt.Succeed(api.Get(ctx, client.ObjectKey{Name: name}, cluster))
			conditions, _, _ := unstructured.NestedSlice(cluster.Object, "status", "conditions")
			if !slices.ContainsFunc(conditions, func(condition any) bool {
				fields, _ := condition.(map[string]any)
				return fields["type"] == "Active" && fields["status"] == string(metav1.ConditionTrue)
			}) {
				attempt.Fail("%s is not active: %v", name, conditions)
			}
		}
	})
}

func (f *Fleet) mergeKubeconfigs() {
	merged := clientcmdapi.NewConfig()
	merged.CurrentContext = Manager
	for _, m := range f.members {
		f.addContext(merged, m.name, "")
	}
	attempt.Succeed(clientcmd.WriteToFile(*merged, f.kubeconfig()))
}

// addContext adds a context for one cluster, of its name, for whom a token is of; empty is the admin.
func (f *Fleet) addContext(config *clientcmdapi.Config, name, token string) {
	own := attempt.Must(clientcmd.LoadFromFile(filepath.Join(f.dir, name, "kubeconfig")))
	context := own.Contexts["admin"]
	c := own.Clusters[context.Cluster]
	config.Clusters[name] = &clientcmdapi.Cluster{Server: c.Server, CertificateAuthorityData: c.CertificateAuthorityData}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: cmp.Or(token, own.AuthInfos[context.AuthInfo].Token)}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
}
