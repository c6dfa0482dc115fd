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
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// TestPodsOf is about whose JobSet it is that has the job's name.
func TestPodsOf(t *testing.T) {
	type row struct {
		owner *metav1.OwnerReference
		// of is the UID of the pod's JobSet; that of the job is "js".
		of           string
		gone, unseen bool
		pods         int
		err          string
	}
	expect.Rows(t, map[string]row{
		"its own":                             {owner: &metav1.OwnerReference{Kind: "TrainJob", Name: "llm", UID: "job"}, of: "js", pods: 1},
		"its own, with pods of a former one":  {owner: &metav1.OwnerReference{Kind: "TrainJob", Name: "llm", UID: "job"}, of: "former"},
		"none yet, with pods of a former one": {gone: true, of: "former"},
		"one that may not be seen":            {unseen: true, of: "js", pods: 1},
		"a former TrainJob's":                 {owner: &metav1.OwnerReference{Kind: "TrainJob", Name: "llm", UID: "former"}},
		"somebody else's":                     {err: "JobSet llm is not of TrainJob llm: delete one of them"},
	}, func(t *testing.T, tc row) {
		js := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "llm", UID: "js"}}
		if tc.owner != nil {
			tc.owner.APIVersion, tc.owner.Controller = trainjob.GVK.GroupVersion().String(), new(true)
			js.OwnerReferences = []metav1.OwnerReference{*tc.owner}
		}
		of := pod("node", 0, 0, "node")
		of.Namespace = "team"
		metav1.SetMetaDataLabel(&of.ObjectMeta, jobsetapi.JobSetNameKey, "llm")
		metav1.SetMetaDataLabel(&of.ObjectMeta, jobsetapi.JobSetUIDKey, tc.of)
		l := &looker{key: client.ObjectKeyFromObject(js)}
		objects := []client.Object{&of}
		if !tc.gone {
			objects = append(objects, js)
		}
		at := &place{client: kit.Fake(kit.Scheme(trainjob.AddToScheme), objects...).WithInterceptorFuncs(kit.RefusingGet(func(client.Object, client.ObjectKey) error {
			if tc.unseen {
				return kit.Forbidden("jobsets")
			}
			return nil
		})).Build()}
		pods, err := l.podsOf(t.Context(), at, &trainjob.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "llm", UID: "job"}})
		expect.Same(t, "Unexpected number of pods and error", []any{tc.pods, tc.err}, []any{len(pods), expect.Text(err)})
	})
}

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
