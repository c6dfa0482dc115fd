// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestSentence(t *testing.T) {
	request := func(server string, cause error) error {
		return fmt.Errorf("listing nodes: %w", &url.Error{Op: "Get", URL: server + "/api?timeout=32s", Err: &net.OpError{Op: "dial", Err: cause}})
	}
	known := *clientcmdapi.NewConfig()
	known.Contexts["a"] = clientcmdapi.NewContext()
	_, noContext := clientcmd.NewDefaultClientConfig(known, &clientcmd.ConfigOverrides{CurrentContext: "nope"}).ClientConfig()
	cases := map[string]struct {
		err  error
		want string
	}{
		"nothing configured":    {err: clientcmd.ErrEmptyConfig, want: "no cluster is configured: name a kubeconfig file with --kubeconfig or KUBECONFIG, or a server with --server"},
		"kubectl's own default": {err: request("http://localhost:8080", errors.New("refused")), want: "no cluster is configured: name a kubeconfig file with --kubeconfig or KUBECONFIG, or a server with --server"},
		"no answer": {
			err:  request("https://10.0.0.1:6443", os.NewSyscallError("connect", errors.New("connection refused"))),
			want: "the API server at https://10.0.0.1:6443 cannot be reached (connection refused): check that it runs, and that --context or --kubeconfig names the cluster that you mean",
		},
		"no such context": {err: noContext, want: `context "nope" does not exist: kubectl config get-contexts lists those that there are`},
		"nobody known":    {err: fmt.Errorf("listing: %w", apierrors.NewUnauthorized("x")), want: "the API server does not know you (Unauthorized): log in again, or name another user with --user or --context"},
		"anything else":   {err: errors.New("there is no TrainJob"), want: "there is no TrainJob"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) { expect.Same(t, "Unexpected sentence", tc.want, Sentence(tc.err).Error()) })
	}
	expect.That(t, Sentence(nil) == nil, "There is a sentence about nothing")
}

func TestTrainJobName(t *testing.T) {
	cases := map[string]struct{ want, says string }{
		"llm":                                {want: "llm"},
		"trainjob/llm":                       {want: "llm"},
		"TrainJobs/llm":                      {want: "llm"},
		"trainjobs.trainer.kubeflow.org/llm": {want: "llm"},
		"trainjob.v1alpha1.trainer.kubeflow.org/llm": {want: "llm"},
		"job/llm":                   {says: "job/llm is no TrainJob: give NAME or trainjob/NAME"},
		"trainjobs.example.com/llm": {says: "trainjobs.example.com/llm is no TrainJob: give NAME or trainjob/NAME"},
		"trainjob/":                 {says: "trainjob/ names no TrainJob: give NAME or trainjob/NAME"},
		"trainjob/a/b":              {says: "trainjob/a/b names no TrainJob: give NAME or trainjob/NAME"},
	}
	for arg, tc := range cases {
		t.Run(arg, func(t *testing.T) {
			got, err := TrainJobName(arg)
			expect.Same(t, "Unexpected name and error", []string{tc.want, tc.says}, []string{got, expect.Text(err)})
		})
	}
}
