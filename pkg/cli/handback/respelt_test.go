// SPDX-License-Identifier: Apache-2.0

package handback

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestRespelt(t *testing.T) {
	expect.Rows(t, map[string]expect.Row[string, string]{
		"an amount that is a number":              {In: `{"trainer":{"resourcesPerNode":{"limits":{"nvidia.com/gpu":8}}}}`, Want: "spec.trainer"},
		"one that is text":                        {In: `{"trainer":{"numNodes":4,"resourcesPerNode":{"limits":{"nvidia.com/gpu":"8"}}}}`},
		"text in another spelling":                {In: `{"trainer":{"resourcesPerNode":{"limits":{"cpu":"1000m"}}}}`, Want: "spec.trainer"},
		"no amount":                               {In: `{"trainer":{"numNodes":4,"image":"train:1","args":["a"]}}`},
		"nothing":                                 {In: `{"trainer":null}`},
		"an initializer's variable that is empty": {In: `{"initializer":{"model":{"env":[{"name":"A","value":""}]}}}`, Want: "spec.initializer"},
		"a mount of another manager's that says a default": {In: entryOf(`{"containers":[{"name":"node","volumeMounts":[{"name":"v","mountPath":"/x","readOnly":false}]}]}`),
			Want: "the entry of example.com/a in spec.runtimePatches"},
		"one that does not":               {In: entryOf(`{"containers":[{"name":"node","volumeMounts":[{"name":"v","mountPath":"/x"}]}]}`)},
		"what may change, or is left out": {In: entryOf(`{"tolerations":[{"key":"a","operator":""}],"volumes":[]}`)},
		"an entry without pods":           {In: `{"runtimePatches":[{"manager":"example.com/a","trainingRuntimeSpec":{"template":{"spec":{}}}}]}`},
	}, func(t *testing.T, tc expect.Row[string, string]) {
		var spec any
		expect.NoError(t, json.Unmarshal([]byte(tc.In), &spec))
		expect.Same(t, "Unexpected field", tc.Want, respeltField(map[string]any{"spec": spec}))
	})
}

// People copy them. Of what asks for an entry's time, as the SDK does, Trainer's webhook rewrites spec.trainer.
func TestSamplesAreNotRespelt(t *testing.T) {
	seen := 0
	for _, pattern := range []string{"config/samples/*.yaml", "docs/samples/*.yaml", "docs/samples/*.json"} {
		for _, path := range expect.Must(filepath.Glob(filepath.Join("..", "..", "..", pattern)))(t) {
			if strings.HasPrefix(filepath.Base(path), "invalid") {
				continue
			}
			documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(expect.Must(os.ReadFile(path))(t)), 4096)
			for {
				var raw runtime.RawExtension
				err := documents.Decode(&raw)
				if errors.Is(err, io.EOF) {
					break
				}
				var job unstructured.Unstructured
				expect.NoError(t, errors.Join(err, json.Unmarshal(raw.Raw, &job.Object)))
				if job.GetKind() != "TrainJob" {
					continue
				}
				seen++
				if len(itemsOf(job.Object, "spec", "runtimePatches")) > 0 {
					unstructured.RemoveNestedField(job.Object, "spec", "trainer")
				}
				expect.Same(t, path+": "+job.GetName(), "", respeltField(job.Object))
			}
		}
	}
	expect.That(t, seen >= 20, "Only %d TrainJobs are found", seen)
}

// entryOf is the spec of a TrainJob with an entry of example.com/a.
func entryOf(pods string) string {
	return `{"runtimePatches":[{"manager":"example.com/a","trainingRuntimeSpec":{"template":{"spec":{"replicatedJobs":[
		{"name":"node","template":{"spec":{"template":{"spec":` + pods + `}}}}]}}}}]}`
}
