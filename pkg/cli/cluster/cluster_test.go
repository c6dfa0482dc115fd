// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/config"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/pkg/webhookconfig"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// configMap has a rule for one resource.
func configMap(name, resource string, minutes int) *corev1.ConfigMap {
	cm := kit.ConfigMap(config.Namespace, name, ManagerConfigKey, "tolerationRules: [{resources: ["+resource+"], tolerations: [{key: a}]}]")
	cm.CreationTimestamp = metav1.NewTime(time.Date(2030, 1, 1, 12, minutes, 0, 0, time.UTC))
	return cm
}

func mounting(configMap string) *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: config.Namespace, Name: ManagerDeployment}}
	d.Spec.Template.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: configMap}},
	}}}
	return d
}

func TestManagerConfiguration(t *testing.T) {
	older, newer := configMap(ManagerConfigMap+"-a", "amd.com/gpu", 0), configMap(ManagerConfigMap+"-b", "habana.ai/gaudi", 1)
	type row struct {
		objects []client.Object
		// get is what becomes of reading the Deployment.
		get  error
		want []string
	}
	expect.Rows(t, map[string]row{
		"nothing installed":                      {},
		"a ConfigMap of another name":            {objects: []client.Object{configMap("other", "amd.com/gpu", 0)}},
		"no YAML":                                {objects: []client.Object{configMap(ManagerConfigMap, "[", 0)}},
		"the newest":                             {objects: []client.Object{older, newer}, want: []string{"habana.ai/gaudi"}},
		"the one that the Deployment mounts":     {objects: []client.Object{older, newer, mounting(older.Name)}, want: []string{"amd.com/gpu"}},
		"a Deployment that may not be looked at": {objects: []client.Object{older, newer, mounting(older.Name)}, get: kit.Forbidden("deployments"), want: []string{"habana.ai/gaudi"}},
	}, func(t *testing.T, tc row) {
		c := kit.Fake(kit.Scheme(), tc.objects...).WithInterceptorFuncs(kit.RefusingGet(func(client.Object, client.ObjectKey) error { return tc.get })).Build()
		cfg := expect.Must(ManagerConfiguration(t.Context(), c))(t)
		expect.That(t, cfg == nil || *cfg.Webhook.Port == 9443, "The configuration lacks its defaults")
		var got []string
		for _, rule := range WithDefaults(cfg).TolerationRules {
			got = append(got, rule.Resources...)
		}
		expect.Same(t, "Unexpected resources", tc.want, got)
	})
}

func TestManagerConfigurationThatMayNotBeSeen(t *testing.T) {
	c := kit.Fake(kit.Scheme()).WithInterceptorFuncs(kit.Refusing(func(any, client.ObjectKey) error { return kit.Forbidden("configmaps") })).Build()
	_, err := ManagerConfiguration(t.Context(), c)
	expect.That(t, apierrors.IsForbidden(err), "The error is not of kind Forbidden: %v", err)
}

func TestSentence(t *testing.T) {
	request := func(server string, cause error) error {
		return fmt.Errorf("listing nodes: %w", &url.Error{Op: "Get", URL: server + "/api?timeout=32s", Err: &net.OpError{Op: "dial", Err: cause}})
	}
	known := *clientcmdapi.NewConfig()
	known.Contexts["a"] = clientcmdapi.NewContext()
	_, noContext := clientcmd.NewDefaultClientConfig(known, &clientcmd.ConfigOverrides{CurrentContext: "nope"}).ClientConfig()
	lists := func(kind, message string) error {
		return fmt.Errorf("listing: %w", apierrors.NewForbidden(schema.GroupResource{Group: "kueue.x-k8s.io", Resource: kind}, "", errors.New(message)))
	}
	type row struct {
		err  error
		want string
		code int
	}
	expect.Rows(t, map[string]row{
		"no right in the cluster": {err: lists("clusterqueues", `User "jane" cannot list resource "clusterqueues" in API group "kueue.x-k8s.io" at the cluster scope`), code: exit.Unseen,
			want: `you may not list clusterqueues.kueue.x-k8s.io in the whole cluster: ask an admin for that (listing: clusterqueues.kueue.x-k8s.io is forbidden: User "jane" cannot list resource "clusterqueues" in API group "kueue.x-k8s.io" at the cluster scope)`},
		"no right in a namespace": {err: lists("pods", `User "jane" cannot get resource "pods" in API group "" in the namespace "team"`), code: exit.Unseen,
			want: `you may not get pods in namespace team: ask an admin for that (listing: pods.kueue.x-k8s.io is forbidden: User "jane" cannot get resource "pods" in API group "" in the namespace "team")`},
		"refused by a quota": {err: lists("pods", "exceeded quota: gpus"), want: "listing: pods.kueue.x-k8s.io is forbidden: exceeded quota: gpus"},
		"of a code of its own": {err: exit.With(exit.Failed, lists("pods", `User "jane" cannot get resource "pods" in API group "" in the namespace "team"`)),
			want: `listing: pods.kueue.x-k8s.io is forbidden: User "jane" cannot get resource "pods" in API group "" in the namespace "team"`},
		"nothing configured":    {err: clientcmd.ErrEmptyConfig, want: "no cluster is configured: name a kubeconfig file with --kubeconfig or KUBECONFIG, or a server with --server"},
		"kubectl's own default": {err: request("http://localhost:8080", errors.New("refused")), want: "no cluster is configured: name a kubeconfig file with --kubeconfig or KUBECONFIG, or a server with --server"},
		"no answer": {err: request("https://10.0.0.1:6443", os.NewSyscallError("connect", errors.New("connection refused"))),
			want: "listing nodes: the API server at https://10.0.0.1:6443 cannot be reached (connection refused): check that it runs, and that --context or --kubeconfig names the cluster that you mean"},
		"no answer, after something was done": {err: errors.Join(errors.New("TrainJob a stays stopped"), request("https://10.0.0.1:6443", errors.New("refused"))),
			want: "TrainJob a stays stopped\nlisting nodes: the API server at https://10.0.0.1:6443 cannot be reached (refused): check that it runs, and that --context or --kubeconfig names the cluster that you mean"},
		"Ctrl-C":          {err: request("https://10.0.0.1:6443", context.Canceled), want: "listing nodes: interrupted"},
		"no such context": {err: noContext, want: `context "nope" does not exist: kubectl config get-contexts lists those that there are`},
		"nobody known":    {err: fmt.Errorf("listing: %w", apierrors.NewUnauthorized("x")), want: "listing: the API server does not know you (Unauthorized): log in again, or name another user with --user or --context"},
		"anything else":   {err: errors.New("there is no TrainJob"), want: "there is no TrainJob"},
	}, func(t *testing.T, tc row) {
		got := Sentence(tc.err)
		expect.Same(t, "Unexpected sentence", tc.want, got.Error())
		expect.Same(t, "Unexpected exit code", max(tc.code, exit.Failed), exit.Code(got))
	})
	expect.That(t, Sentence(nil) == nil, "There is a sentence about nothing")
}

func TestTrainJobName(t *testing.T) {
	for arg, tc := range map[string]struct{ want, says string }{
		"llm":                                {want: "llm"},
		"trainjob/llm":                       {want: "llm"},
		"TrainJobs/llm":                      {want: "llm"},
		"trainjobs.trainer.kubeflow.org/llm": {want: "llm"},
		"trainjob.v1alpha1.trainer.kubeflow.org/llm": {want: "llm"},
		"job/llm":                   {says: "job/llm names no TrainJob: give NAME or trainjob/NAME"},
		"trainjobs.example.com/llm": {says: "trainjobs.example.com/llm names no TrainJob: give NAME or trainjob/NAME"},
		"trainjob/":                 {says: "trainjob/ names no TrainJob: give NAME or trainjob/NAME"},
		"trainjob/a/b":              {says: "trainjob/a/b names no TrainJob: give NAME or trainjob/NAME"},
	} {
		t.Run(arg, func(t *testing.T) {
			got, err := TrainJobName(arg)
			expect.Same(t, "Unexpected name and error", []string{tc.want, tc.says}, []string{got, expect.Text(err)})
		})
	}
}

func TestTrainJobsThatCannotBeRead(t *testing.T) {
	resource := schema.GroupResource{Group: "trainer.kubeflow.org", Resource: "trainjobs"}
	forbidden := apierrors.NewForbidden(resource, "llm", errors.New("no role"))
	type row struct {
		err       error
		namespace string
		list      bool
		want      string
		code      int
	}
	expect.Rows(t, map[string]row{
		"one that is not there": {err: apierrors.NewNotFound(resource, "llm"), namespace: "team", code: exit.Failed,
			want: "there is no TrainJob llm in namespace team: name another, or its namespace with -n"},
		"one that may not be seen": {err: forbidden, namespace: "team", code: exit.Unseen,
			want: "you may not get TrainJobs in namespace team: name another with -n, or ask an admin for ClusterRole kueue-trainer-user there"},
		"those of a namespace that may not be seen": {err: forbidden, namespace: "team", list: true, code: exit.Unseen,
			want: "you may not list TrainJobs in namespace team: name another with -n, or ask an admin for ClusterRole kueue-trainer-user there"},
		"those of all namespaces that may not be seen": {err: forbidden, list: true, code: exit.Unseen,
			want: "you may not list TrainJobs of all namespaces: name one with -n, or ask an admin for ClusterRole kueue-batch-admin-role"},
		"a cluster that does not answer": {err: errors.New("gone"), list: true, code: exit.Failed, want: "reading TrainJobs: gone"},
	}, func(t *testing.T, tc row) {
		r := kit.Fake(kit.Scheme()).WithInterceptorFuncs(kit.Refusing(func(any, client.ObjectKey) error { return tc.err })).Build()
		var err error
		if tc.list {
			_, err = TrainJobs(t.Context(), r, tc.namespace)
		} else {
			_, err = TrainJob(t.Context(), r, tc.namespace, "llm")
		}
		expect.Same(t, "Unexpected message", tc.want, err.Error())
		expect.Same(t, "Unexpected exit code", tc.code, exit.Code(err))
	})
}

func TestTrainJobsThatMayNotBeSeenAreNone(t *testing.T) {
	c := kit.Fake(kit.Scheme()).WithInterceptorFuncs(kit.Refusing(func(any, client.ObjectKey) error { return kit.Forbidden("trainjobs") })).Build()
	jobs, all, err := VisibleTrainJobs(t.Context(), c, "team")
	expect.That(t, len(jobs) == 0 && !all && err == nil, "There are %d, all of them: %t, error %v", len(jobs), all, err)
}

// elsewhere is an installation in namespaces of its admin's choice.
func elsewhere() []client.Object {
	webhooks := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: webhookconfig.Installed.Mutating}}
	webhooks.Webhooks = []admissionregistrationv1.MutatingWebhook{{ClientConfig: admissionregistrationv1.WebhookClientConfig{
		Service: &admissionregistrationv1.ServiceReference{Namespace: "ml", Name: "webhook"}}}}
	return []client.Object{
		webhooks,
		kit.ConfigMap("ml", ManagerConfigMap, ManagerConfigKey, "metrics: {userLabel: example.com/user}\nkueueConfigMap: {namespace: queues, name: mine, key: kueue.yaml}"),
		kit.ConfigMap("queues", "mine", "kueue.yaml", "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nmanageJobsWithoutQueueName: true"),
	}
}

func TestConfigurationsAreReadWhereTheyAre(t *testing.T) {
	c := kit.Fake(kit.Scheme(), elsewhere()...).Build()
	expect.Same(t, "Unexpected namespace", "ml", expect.Must(ManagerNamespace(t.Context(), c))(t))
	manager := expect.Must(ManagerConfiguration(t.Context(), c))(t)
	expect.That(t, manager != nil && manager.Metrics.UserLabel == "example.com/user", "The manager's configuration is %+v", manager)
	kueue := expect.Must(KueueConfiguration(t.Context(), c))(t)
	expect.That(t, kueue != nil && kueue.ManageJobsWithoutQueueName, "Kueue's configuration is %+v", kueue)
}

func TestPartsAreWhereTheyWereInstalled(t *testing.T) {
	c := kit.Fake(kit.Scheme(), elsewhere()...).Build()
	for want, part := range map[string]Part{"ml": Manager, "queues": Kueue, JobSet.Namespace: JobSet} {
		expect.Same(t, "Unexpected namespace of "+part.Name, want, expect.Must(Placed(t.Context(), c, part))(t).Namespace)
	}
}

func TestTheManifestsNamespaceIsTakenWhereNothingTells(t *testing.T) {
	byURL := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: webhookconfig.Installed.Mutating}}
	byURL.Webhooks = []admissionregistrationv1.MutatingWebhook{{ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: ptr.To("https://127.0.0.1")}}}
	expect.Rows(t, map[string][]client.Object{"no webhooks": nil, "webhooks at an address": {byURL}}, func(t *testing.T, objects []client.Object) {
		c := kit.Fake(kit.Scheme(), objects...).Build()
		expect.Same(t, "Unexpected namespace", config.Namespace, expect.Must(ManagerNamespace(t.Context(), c))(t))
	})
	forbidden := kit.Fake(kit.Scheme(), elsewhere()...).WithInterceptorFuncs(kit.RefusingGet(func(client.Object, client.ObjectKey) error {
		return kit.Forbidden("mutatingwebhookconfigurations")
	})).Build()
	expect.Same(t, "Unexpected namespace", config.Namespace, expect.Must(ManagerNamespace(t.Context(), forbidden))(t))
}

func TestWorkerContext(t *testing.T) {
	contexts := map[string]*clientcmdapi.Context{"manager": {}, "west": {}, "east": {}, "arn:aws:eks:cluster/a=b": {}}
	type row struct {
		cluster    string
		given      []string
		want, says string
	}
	expect.Rows(t, map[string]row{
		"a context with its name":            {cluster: "west", want: "west"},
		"no such context":                    {cluster: "north", says: "no context of the kubeconfig is known to lead there: give --worker-context north=CONTEXT"},
		"one that is given":                  {cluster: "north", given: []string{"south=west", "north=east"}, want: "east"},
		"one that is given, before its name": {cluster: "west", given: []string{"west=east"}, want: "east"},
		"one with signs in it":               {cluster: "north", given: []string{"north=arn:aws:eks:cluster/a=b"}, want: "arn:aws:eks:cluster/a=b"},
		"a name that is both":                {cluster: "west", given: []string{"west"}, want: "west"},
		"one that is given for another":      {cluster: "north", given: []string{"west"}, says: "no context of the kubeconfig is known to lead there: give --worker-context north=CONTEXT"},
		"a context that does not exist": {cluster: "west", given: []string{"west=nope"},
			says: "--worker-context west=nope: the kubeconfig has no context nope: kubectl config get-contexts lists those that there are"},
		"no cluster": {cluster: "west", given: []string{"=west"}, says: "--worker-context =west: give CLUSTER=CONTEXT, or a context that is named like the cluster"},
		"no context": {cluster: "west", given: []string{"west="}, says: "--worker-context west=: give CLUSTER=CONTEXT, or a context that is named like the cluster"},
	}, func(t *testing.T, tc row) {
		got, err := workerContext(tc.cluster, tc.given, contexts)
		expect.Same(t, "Unexpected context and error", []string{tc.want, tc.says}, []string{got, expect.Text(err)})
	})
}

// TestInContext is about credentials that flags give for the manager cluster: a worker must not
// get to see them.
func TestInContext(t *testing.T) {
	flags := Flags{ConfigFlags: genericclioptions.NewConfigFlags(true)}
	flags.KubeConfig, flags.Context, flags.Impersonate, flags.ImpersonateGroup = ptr.To("file"), ptr.To("manager"), ptr.To("jane"), ptr.To([]string{"ml"})
	flags.BearerToken, flags.APIServer, flags.AuthInfoName, flags.ClusterName = ptr.To("secret"), ptr.To("https://manager"), ptr.To("admin"), ptr.To("manager")
	got := flags.inContext("west")
	type seen struct {
		KubeConfig, Context, As          string
		Groups                           []string
		Token, Server, User, ClusterName string
	}
	want := seen{KubeConfig: "file", Context: "west", As: "jane", Groups: []string{"ml"}}
	expect.Same(t, "Unexpected flags", want, seen{
		KubeConfig: *got.KubeConfig, Context: *got.Context, As: *got.Impersonate, Groups: *got.ImpersonateGroup,
		Token: *got.BearerToken, Server: *got.APIServer, User: *got.AuthInfoName, ClusterName: *got.ClusterName,
	})
	expect.Same(t, "Unexpected context of the manager cluster", "manager", *flags.Context)
}

func TestCheck(t *testing.T) {
	prefix := "TrainJob llm in namespace team of context west is not the copy of this one ("
	suffix := "): the context leads to another cluster than worker1, or somebody else made that TrainJob there; give the right one with --worker-context worker1=CONTEXT"
	const origin, prebuilt = "kueue.x-k8s.io/multikueue-origin", "kueue.x-k8s.io/prebuilt-workload-name"
	type row struct {
		labels, annotations map[string]string
		want                string
	}
	expect.Rows(t, map[string]row{
		"the copy":                        {labels: map[string]string{origin: "multikueue", prebuilt: "trainjob-llm-12345"}},
		"the copy, with a long name":      {labels: map[string]string{origin: "multikueue"}, annotations: map[string]string{prebuilt: "trainjob-llm-12345"}},
		"one that somebody made":          {labels: map[string]string{prebuilt: "trainjob-llm-12345"}, want: prefix + "it has no label kueue.x-k8s.io/multikueue-origin" + suffix},
		"the copy of one of another name": {labels: map[string]string{origin: "multikueue", prebuilt: "trainjob-llm-6789a"}, want: prefix + "it does not name Workload trainjob-llm-12345" + suffix},
	}, func(t *testing.T, tc row) {
		worker := &Worker{Cluster: "worker1", Context: "west"}
		err := worker.Check(&trainjob.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "llm", Labels: tc.labels, Annotations: tc.annotations}}, "trainjob-llm-12345")
		expect.Same(t, "Unexpected error", tc.want, expect.Text(err))
		expect.That(t, tc.want == "" || errors.Is(err, ErrNotTheCopy), "It is not ErrNotTheCopy")
	})
}
