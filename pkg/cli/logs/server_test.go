// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// TestManyLogs is about a TrainJob of hundreds of pods: client-go alone opens 5 logs a second.
func TestManyLogs(t *testing.T) {
	kubeconfig := filepath.Join(t.TempDir(), "config")
	config := clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"c": {Server: "https://localhost"}},
		Contexts: map[string]*clientcmdapi.Context{"c": {Cluster: "c"}}, CurrentContext: "c",
	}
	expect.NoError(t, clientcmd.WriteToFile(config, kubeconfig))
	flags := cluster.Flags{ConfigFlags: genericclioptions.NewConfigFlags(true)}
	flags.KubeConfig = &kubeconfig
	clientset := expect.Must(clientset(flags))(t)
	expect.Same(t, "Unexpected requests a second, which every other client has 50 of", float32(50), clientset.CoreV1().RESTClient().GetRateLimiter().QPS())
}

// TestOpener asks an API server, which answers with what it was asked.
func TestOpener(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := io.WriteString(w, r.URL.String())
		expect.That(t, err == nil, "%v", err)
	}))
	defer server.Close()
	c := expect.Must(kubernetes.NewForConfig(&rest.Config{Host: server.URL}))(t)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "llm-node-0-1-xyz"}}
	options := &corev1.PodLogOptions{Container: "node", Follow: true, TailLines: ptr.To[int64](5), SinceSeconds: ptr.To[int64](60)}
	log := expect.Must(openerOf(c)(t.Context(), pod, options))(t)
	got := expect.Must(io.ReadAll(log))(t)
	want := "/api/v1/namespaces/team/pods/llm-node-0-1-xyz/log?container=node&follow=true&sinceSeconds=60&tailLines=5"
	expect.Same(t, "Unexpected request", want, string(got))
}
