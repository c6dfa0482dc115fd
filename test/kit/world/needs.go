// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
)

// Needs returns what the pods of a ClusterTrainingRuntime need in their namespace, yet to
// be created: ServiceAccounts, and volume claims where the JobSet does not make them, as
// with Trainer 2.1.
func (c *Cluster) Needs(ctx context.Context, namespace, runtime string) ([]client.Object, error) {
	var r trainer.ClusterTrainingRuntime
	if err := c.Client.Get(ctx, client.ObjectKey{Name: runtime}, &r); err != nil {
		return nil, err
	}
	accounts, claims := sets.New[string](), sets.New[string]()
	for _, rj := range r.Spec.Template.Spec.ReplicatedJobs {
		pod := &rj.Template.Spec.Template.Spec
		if pod.ServiceAccountName != "" {
			accounts.Insert(pod.ServiceAccountName)
		}
		for _, volume := range pod.Volumes {
			if claim := volume.PersistentVolumeClaim; claim != nil {
				claims.Insert(claim.ClaimName)
			}
		}
	}
	var needs []client.Object
	for name := range accounts {
		needs = append(needs, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
	}
	for name := range claims {
		needs = append(needs, kit.Claim(namespace, name))
	}
	return needs, nil
}

// FreePort returns one of loopback that nobody listens at.
func FreePort() int {
	server := httptest.NewServer(nil)
	defer server.Close()
	return server.Listener.Addr().(*net.TCPAddr).Port
}

// WriteConfig writes the configuration of a component of a local control plane to a file, with
// changes, for another process of it.
func (c *Cluster) WriteConfig(component, file string, changes map[string]any) error {
	data, err := os.ReadFile(filepath.Join(c.localDir, "config", component+".yaml"))
	if err != nil {
		return err
	}
	config, err := Configuration(string(data), changes)
	if err != nil {
		return err
	}
	return os.WriteFile(file, []byte(config), 0o600)
}
