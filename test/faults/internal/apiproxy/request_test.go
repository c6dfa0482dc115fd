// SPDX-License-Identifier: Apache-2.0

package apiproxy

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestClassify(t *testing.T) {
	tests := map[string]struct {
		method, url, body string
		want              Request
		isWrite           bool
	}{
		"a patch of an object": {
			method: http.MethodPatch, url: "/apis/trainer.kubeflow.org/v1alpha1/namespaces/team/trainjobs/llm?fieldManager=m",
			want:    Request{Verb: "patch", Resource: "trainjobs.trainer.kubeflow.org", Namespace: "team", Name: "llm"},
			isWrite: true,
		},
		"a status": {
			method: http.MethodPut, url: "/apis/kueue.x-k8s.io/v1beta2/namespaces/team/workloads/w/status",
			want:    Request{Verb: "update", Resource: "workloads.kueue.x-k8s.io", Subresource: "status", Namespace: "team", Name: "w"},
			isWrite: true,
		},
		"a create has its name from the body": {
			method: http.MethodPost, url: "/apis/kueue.x-k8s.io/v1beta2/namespaces/team/workloads", body: `{"metadata":{"name":"w"}}`,
			want:    Request{Verb: "create", Resource: "workloads.kueue.x-k8s.io", Namespace: "team", Name: "w"},
			isWrite: true,
		},
		"a dry run": {
			method: http.MethodPost, url: "/apis/batch/v1/namespaces/team/jobs?dryRun=All", body: "not JSON",
			want: Request{Verb: "create", Resource: "jobs.batch", Namespace: "team", DryRun: true},
		},
		"a watch of the core group": {
			method: http.MethodGet, url: "/api/v1/pods?watch=true&resourceVersion=5",
			want: Request{Verb: "watch", Resource: "pods"},
		},
		"a list": {
			method: http.MethodGet, url: "/api/v1/namespaces/team/configmaps?limit=500",
			want: Request{Verb: "list", Resource: "configmaps", Namespace: "team"},
		},
		"a namespace itself": {
			method: http.MethodGet, url: "/api/v1/namespaces/team",
			want: Request{Verb: "get", Resource: "namespaces", Namespace: "team", Name: "team"},
		},
		"a cluster-wide object": {
			method: http.MethodDelete, url: "/apis/kueue.x-k8s.io/v1beta2/resourceflavors/a",
			want:    Request{Verb: "delete", Resource: "resourceflavors.kueue.x-k8s.io", Name: "a"},
			isWrite: true,
		},
		"a lease is no write": {
			method: http.MethodPut, url: "/apis/coordination.k8s.io/v1/namespaces/system/leases/l",
			want: Request{Verb: "update", Resource: "leases.coordination.k8s.io", Namespace: "system", Name: "l"},
		},
		"discovery": {method: http.MethodGet, url: "/apis/batch/v1", want: Request{}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := Classify(httptest.NewRequest(tc.method, tc.url, strings.NewReader(tc.body)), []byte(tc.body))
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("unexpected request (-want +got):\n%s", diff)
			}
			if got.IsWrite() != tc.isWrite {
				t.Errorf("IsWrite() = %v, want %v", got.IsWrite(), tc.isWrite)
			}
		})
	}
}
