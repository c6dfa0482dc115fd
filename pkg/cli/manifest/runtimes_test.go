// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"errors"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

const runtimeList = `apiVersion: v1
kind: List
items:
- {apiVersion: trainer.kubeflow.org/v1alpha1, kind: ClusterTrainingRuntime, metadata: {name: torch}}
- {apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainingRuntime, metadata: {name: own}}
---
{apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainingRuntime, metadata: {name: own, namespace: other}}
`

func TestRuntimes(t *testing.T) {
	unreadable := Parse("g.yaml", []byte("a: b: c\n"))
	runtimes := expect.Must(NewRuntimes(nil, []File{*Parse("f.yaml", []byte(runtimeList)), *unreadable}, "team", nil))(t)
	type row struct {
		into client.Object
		key  client.ObjectKey
		gone bool
	}
	expect.Rows(t, map[string]row{
		"of the cluster, in a list":        {into: &trainer.ClusterTrainingRuntime{}, key: client.ObjectKey{Name: "torch"}},
		"of the namespace given":           {into: &trainer.TrainingRuntime{}, key: client.ObjectKey{Namespace: "team", Name: "own"}},
		"of a namespace that it names":     {into: &trainer.TrainingRuntime{}, key: client.ObjectKey{Namespace: "other", Name: "own"}},
		"one that no file has":             {into: &trainer.TrainingRuntime{}, key: client.ObjectKey{Namespace: "team", Name: "torch"}, gone: true},
		"one of the cluster that none has": {into: &trainer.ClusterTrainingRuntime{}, key: client.ObjectKey{Name: "own"}, gone: true},
	}, func(t *testing.T, tc row) {
		err := runtimes.Get(t.Context(), tc.key, tc.into)
		if apierrors.IsNotFound(err) != tc.gone || !tc.gone && (err != nil || client.ObjectKeyFromObject(tc.into) != tc.key) {
			t.Errorf("Got %v: %v", client.ObjectKeyFromObject(tc.into), err)
		}
	})
}

func TestARuntimeThatIsNoneIsNamedWithItsLine(t *testing.T) {
	file := Parse("f.yaml", []byte("apiVersion: v1\nkind: List\nitems:\n- apiVersion: trainer.kubeflow.org/v1alpha1\n  kind: TrainingRuntime\n  metadata: {name: own}\n  spec: 5\n"))
	_, err := NewRuntimes(nil, []File{*file}, "team", nil)
	var at *Error
	expect.That(t, errors.As(err, &at) && at.Line == 4, "Unexpected error: %v", err)
}
