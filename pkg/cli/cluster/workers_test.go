// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

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
