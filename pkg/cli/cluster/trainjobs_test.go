// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestTrainJobsThatCannotBeRead(t *testing.T) {
	resource := schema.GroupResource{Group: "trainer.kubeflow.org", Resource: "trainjobs"}
	forbidden := apierrors.NewForbidden(resource, "llm", errors.New("no role"))
	cases := map[string]struct {
		err       error
		namespace string
		list      bool
		want      string
		code      int
	}{
		"one that is not there": {
			err: apierrors.NewNotFound(resource, "llm"), namespace: "team", code: exit.Failed,
			want: "there is no TrainJob llm in namespace team: name another, or its namespace with -n",
		},
		"one that may not be seen": {
			err: forbidden, namespace: "team", code: exit.Unseen,
			want: "you may not get TrainJobs in namespace team: name another with -n, or ask an admin for ClusterRole kueue-batch-user-role there",
		},
		"those of a namespace that may not be seen": {
			err: forbidden, namespace: "team", list: true, code: exit.Unseen,
			want: "you may not list TrainJobs in namespace team: name another with -n, or ask an admin for ClusterRole kueue-batch-user-role there",
		},
		"those of all namespaces that may not be seen": {
			err: forbidden, list: true, code: exit.Unseen,
			want: "you may not list TrainJobs of all namespaces: name one with -n, or ask an admin for ClusterRole kueue-batch-admin-role",
		},
		"a cluster that does not answer": {err: errors.New("gone"), list: true, code: exit.Failed, want: "reading TrainJobs: gone"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
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
}
