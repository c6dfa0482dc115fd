// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"cmp"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// TestFields is for what the API server says without a CRD; for what the CRDs say there
// is test/generations.
func TestFields(t *testing.T) {
	type row struct {
		metadata, spec string
		// fields and pods are the fields that Fields and Pods find wrong.
		fields, pods []string
	}
	expect.Rows(t, map[string]row{
		"in order": {metadata: `{name: a, namespace: ns, labels: {a.io/b: c, d: ""}, annotations: {A.io/b: "any text"}}`,
			spec: `trainer: {numNodes: 2, env: [{name: 1 A}], resourcesPerNode: {limits: {nvidia.com/gpu: 2, cpu: 2}, requests: {nvidia.com/gpu: "2", cpu: 1}}}`},
		"metadata that is of no use": {metadata: `{generateName: Bad-, namespace: Bad NS, labels: {foo bar: a, b: a b}, annotations: {a b: x}, finalizers: [a b]}`,
			fields: []string{
				"metadata.namespace", "metadata.generateName", "metadata.labels[b]", "metadata.labels[foo bar]", "metadata.annotations[a b]", "metadata.finalizers",
			}},
		"amounts that are none, in their places": {spec: `trainer: {numNodes: "2", resourcesPerNode: {limits: {nvidia.com/gpu: x, cpu: 1}, requests: {memory: 1 GB}}}`,
			fields: []string{
				"spec.trainer.numNodes", "spec.trainer.resourcesPerNode.limits[nvidia.com/gpu]", "spec.trainer.resourcesPerNode.requests.memory",
			}},
		"an item of a list that is none": {spec: `trainer: {env: [{name: A}, {name: 7}]}`, fields: []string{"spec.trainer.env[1].name"}},
		"what no pod can have": {spec: `{trainer: {numNodes: -1, env: [{name: A=B}], resourcesPerNode: {limits: {"": 1, a b!: 1}}},
				initializer: {dataset: {env: [{name: ""}]}, model: {env: [{name: ü}]}}}`,
			pods: []string{
				"spec.trainer.env[0].name", "spec.trainer.numNodes", "spec.trainer.resourcesPerNode.limits[]", "spec.trainer.resourcesPerNode.limits[a b!]",
				"spec.initializer.dataset.env[0].name", "spec.initializer.model.env[0].name",
			}},
		"requests that do not go with limits": {spec: `trainer: {resourcesPerNode: {limits: {nvidia.com/gpu: 2, cpu: 1, memory: -1}, requests: {nvidia.com/gpu: 1, cpu: 2}}}`,
			pods: []string{
				"spec.trainer.resourcesPerNode.limits[memory]", "spec.trainer.resourcesPerNode.requests[cpu]", "spec.trainer.resourcesPerNode.requests[nvidia.com/gpu]",
			}},
		"a trainer that is none": {spec: `trainer: 7`, fields: []string{"spec.trainer"}},
	}, func(t *testing.T, tc row) {
		type object = map[string]any
		spec := expect.FromYAML[object](t, cmp.Or(tc.spec, "{}"))
		spec["runtimeRef"] = object{"name": "torch"}
		job := object{
			"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "spec": spec,
			"metadata": expect.FromYAML[any](t, cmp.Or(tc.metadata, "{name: a}")),
		}
		data := []byte(expect.JSON(t, job))
		for _, generation := range generations {
			expect.Same(t, fmt.Sprintf("Unexpected fields for Trainer %s", generation), tc.fields, places(Fields(generation, data)))
			expect.Same(t, fmt.Sprintf("Unexpected findings about pods for Trainer %s", generation), tc.pods, places(Pods(generation, data)))
		}
	})
}

func places(errs field.ErrorList) []string {
	return expect.Each(errs, func(err *field.Error) string { return err.Field })
}
