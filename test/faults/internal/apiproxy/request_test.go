// SPDX-License-Identifier: Apache-2.0

package apiproxy

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestClassify(t *testing.T) {
	tests := map[string]struct {
		method, url, body string
		want              Request
		isWrite           bool
	}{
		"a patch of an object": {
			"PATCH", "/apis/trainer.kubeflow.org/v1alpha1/namespaces/team/trainjobs/llm?fieldManager=m", "",
			Request{Verb: "patch", Resource: "trainjobs.trainer.kubeflow.org", Namespace: "team", Name: "llm"}, true,
		},
		"a status": {
			"PUT", "/apis/kueue.x-k8s.io/v1beta2/namespaces/team/workloads/w/status", "",
			Request{Verb: "update", Resource: "workloads.kueue.x-k8s.io", Subresource: "status", Namespace: "team", Name: "w"}, true,
		},
		"a create has its name from the body": {
			"POST", "/apis/kueue.x-k8s.io/v1beta2/namespaces/team/workloads", `{"metadata":{"name":"w"}}`,
			Request{Verb: "create", Resource: "workloads.kueue.x-k8s.io", Namespace: "team", Name: "w"}, true,
		},
		"a dry run": {
			"POST", "/apis/batch/v1/namespaces/team/jobs?dryRun=All", "not JSON",
			Request{Verb: "create", Resource: "jobs.batch", Namespace: "team", DryRun: true}, false,
		},
		"a cluster-wide object": {
			"DELETE", "/apis/kueue.x-k8s.io/v1beta2/resourceflavors/a", "",
			Request{Verb: "delete", Resource: "resourceflavors.kueue.x-k8s.io", Name: "a"}, true,
		},
		"a lease is no write": {
			"PUT", "/apis/coordination.k8s.io/v1/namespaces/system/leases/l", "",
			Request{Verb: "update", Resource: "leases.coordination.k8s.io", Namespace: "system", Name: "l"}, false,
		},
		"a watch of the core group": {"GET", "/api/v1/pods?watch=true&resourceVersion=5", "", Request{Verb: "watch", Resource: "pods"}, false},
		"a list": {
			"GET", "/api/v1/namespaces/team/configmaps?limit=500", "", Request{Verb: "list", Resource: "configmaps", Namespace: "team"}, false,
		},
		"a namespace itself": {
			"GET", "/api/v1/namespaces/team", "", Request{Verb: "get", Resource: "namespaces", Namespace: "team", Name: "team"}, false,
		},
		"discovery": {"GET", "/apis/batch/v1", "", Request{}, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := Classify(httptest.NewRequest(tc.method, tc.url, strings.NewReader(tc.body)), []byte(tc.body))
			expect.Same(t, "unexpected request", tc.want, got)
			expect.Same(t, "Unexpected IsWrite", tc.isWrite, got.IsWrite())
		})
	}
}
