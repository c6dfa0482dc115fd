// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

const served = `{"apiVersion":"trainer.kubeflow.org/v1alpha1","kind":"TrainJob","metadata":{
	"name":"job","namespace":"ns","uid":"u","resourceVersion":"7","generation":2,"creationTimestamp":"2030-01-01T00:00:00Z",
	"finalizers":["x.example.com/y"],"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"p"}],"managedFields":[{"manager":"kubectl"}],
	"labels":{"kueue.x-k8s.io/queue-name":"q"},"annotations":{"mine":"1","kubectl.kubernetes.io/last-applied-configuration":"{}"}},`

func TestExport(t *testing.T) {
	cases := map[string]struct {
		json string
		want string
	}{
		"what the API server sets is left out, and what no type of ours has stays": {
			json: served + `"spec":{"runtimeRef":{"name":"torch"},"suspend":true,"labels":{"a":"1"},"trainer":{"numNodes":2}},"status":{"conditions":[]}}`,
			want: exported + "spec:\n  labels:\n    a: \"1\"\n  runtimeRef:\n    name: torch\n  suspend: true\n  trainer:\n    numNodes: 2\n",
		},
		"what kueue-trainer added is left out, and the suspension with it": {
			json: served + `"spec":{"runtimeRef":{"name":"torch"},"suspend":true,"runtimePatches":[{"manager":"a.example.com/b","n":1},{"manager":"kueue.x-k8s.io/manager"}]}}`,
			want: exported + "spec:\n  runtimePatches:\n  - manager: a.example.com/b\n    \"n\": 1\n  runtimeRef:\n    name: torch\n",
		},
		"also in Trainer 2.1": {
			json: served + `"spec":{"runtimeRef":{"name":"torch"},"suspend":true,"podTemplateOverrides":[{"targetJobs":[{"name":"node"}],"metadata":{"annotations":{"kueue-trainer.dev/manager":"kueue.x-k8s.io/manager"}}}]}}`,
			want: exported + "spec:\n  runtimeRef:\n    name: torch\n",
		},
		"a finished TrainJob": {json: served + `"spec":{"runtimeRef":{"name":"torch"}},"status":{"conditions":[{"type":"Complete","status":"True"}]}}`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			u := &unstructured.Unstructured{}
			expect.NoError(t, u.UnmarshalJSON([]byte(tc.json)))
			file := expect.Must(exportOne(u))(t)
			got := ""
			if file != nil {
				got = string(file.Data)
			}
			expect.Same(t, "Unexpected manifest", tc.want, got)
		})
	}
}

const exported = `apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata:
  annotations:
    mine: "1"
  labels:
    kueue.x-k8s.io/queue-name: q
  name: job
  namespace: ns
`
