// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
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
}
