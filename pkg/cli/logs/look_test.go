// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"context"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
)

// TestPodsOf is about whose JobSet it is that has the job's name.
func TestPodsOf(t *testing.T) {
	cases := map[string]struct {
		owner *metav1.OwnerReference
		// of is the UID of the pod's JobSet; that of the job is "js".
		of     string
		gone   bool
		unseen bool
		pods   int
		err    string
	}{
		"its own":                             {owner: &metav1.OwnerReference{Kind: "TrainJob", Name: "llm", UID: "job"}, of: "js", pods: 1},
		"its own, with pods of a former one":  {owner: &metav1.OwnerReference{Kind: "TrainJob", Name: "llm", UID: "job"}, of: "former"},
		"none yet, with pods of a former one": {gone: true, of: "former"},
		"one that may not be seen":            {unseen: true, of: "js", pods: 1},
		"a former TrainJob's":                 {owner: &metav1.OwnerReference{Kind: "TrainJob", Name: "llm", UID: "former"}},
		"somebody else's":                     {err: "JobSet llm is not of TrainJob llm: delete one of them"},
	}
	scheme := kit.Must(cluster.Scheme())(t)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			js := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "llm", UID: "js"}}
			if tc.owner != nil {
				isController := true
				tc.owner.APIVersion, tc.owner.Controller = trainjob.GVK.GroupVersion().String(), &isController
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
			at := &place{client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
					if tc.unseen {
						return apierrors.NewForbidden(schema.GroupResource{Resource: "jobsets"}, key.Name, nil)
					}
					return c.Get(ctx, key, obj, opts...)
				},
			}).Build()}
			pods, err := l.podsOf(t.Context(), at, &trainjob.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "llm", UID: "job"}})
			got := kit.Text(err)
			if len(pods) != tc.pods || got != tc.err {
				t.Errorf("%d pods and error %q, want %d and %q", len(pods), got, tc.pods, tc.err)
			}
		})
	}
}
