// SPDX-License-Identifier: Apache-2.0

package podset

import (
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestDefaultRequests(t *testing.T) {
	expect.Rows(t, map[string]expect.Row[string, string]{
		"limits alone":                       {In: `containers: [{name: a, resources: {limits: {cpu: 4}}}]`, Want: `containers: [{name: a, resources: {limits: {cpu: 4}, requests: {cpu: 4}}}]`},
		"of init containers":                 {In: `initContainers: [{name: a, resources: {limits: {cpu: 4}}}]`, Want: `initContainers: [{name: a, resources: {limits: {cpu: 4}, requests: {cpu: 4}}}]`},
		"a request of its own":               {In: `containers: [{name: a, resources: {limits: {cpu: 4}, requests: {cpu: 1}}}]`, Want: `containers: [{name: a, resources: {limits: {cpu: 4}, requests: {cpu: 1}}}]`},
		"no GPUs":                            {In: `containers: [{name: a, resources: {limits: {nvidia.com/gpu: 0, cpu: 1}}}]`, Want: `containers: [{name: a, resources: {limits: {cpu: 1}, requests: {cpu: 1}}}]`},
		"a request of nothing below a limit": {In: `containers: [{name: a, resources: {limits: {cpu: 4}, requests: {cpu: 0}}}]`, Want: `containers: [{name: a, resources: {limits: {cpu: 4}, requests: {cpu: 0}}}]`},
		"limits of the pod alone":            {In: `{containers: [{name: a}], resources: {limits: {cpu: 6}}}`, Want: `{containers: [{name: a}], resources: {limits: {cpu: 6}, requests: {cpu: 6}}}`},
		"limits of the pod beside requests":  {In: `{containers: [{name: a, resources: {requests: {cpu: 2, example.com/a: 1}}}, {name: b}], resources: {limits: {cpu: 6, memory: 1Gi}}}`, Want: `{containers: [{name: a, resources: {requests: {cpu: 2, example.com/a: 1}}}, {name: b}], resources: {limits: {memory: 1Gi}, requests: {memory: 1Gi}}}`},
		"a request of the pod beside others": {In: `{containers: [{name: a, resources: {requests: {cpu: 2}}}], resources: {limits: {cpu: 6}, requests: {cpu: 4}}}`, Want: `{containers: [{name: a, resources: {requests: {cpu: 2}}}], resources: {limits: {cpu: 6}, requests: {cpu: 4}}}`},
		"huge pages of the pod":              {In: `{containers: [{name: a, resources: {limits: {hugepages-2Mi: 2Mi}}}], resources: {limits: {hugepages-2Mi: 32Gi}}}`, Want: `{containers: [{name: a, resources: {limits: {hugepages-2Mi: 2Mi}, requests: {hugepages-2Mi: 2Mi}}}], resources: {limits: {hugepages-2Mi: 32Gi}, requests: {hugepages-2Mi: 32Gi}}}`},
		"requests of the pod alone":          {In: `{containers: [{name: a, resources: {requests: {memory: 1Gi}}}], resources: {requests: {cpu: 6}}}`, Want: `{containers: [{name: a, resources: {requests: {memory: 1Gi}}}], resources: {requests: {cpu: 6}}}`},
	}, func(t *testing.T, tc expect.Row[string, string]) {
		pod := expect.FromYAML[corev1.PodSpec](t, tc.In)
		defaultRequests(&pod)
		expect.Same(t, "Unexpected pod", expect.FromYAML[corev1.PodSpec](t, tc.Want), pod, cmpopts.EquateEmpty())
	})
}

// Kueue charges for what stands in the PodSets alone.
func TestPodSetsRequestWhatPodsWill(t *testing.T) {
	job := makeJob("node").gpus("nvidia.com/gpu")
	js := jobSet(job)
	container := &js.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Containers[0]
	container.Resources.Requests = nil
	requests := expect.Must(fromJobSet(js))(t)[0].Template.Spec.Containers[0].Resources.Requests
	expect.That(t, len(container.Resources.Limits) > 0 && requests.Name("nvidia.com/gpu", "").Equal(container.Resources.Limits["nvidia.com/gpu"]), "It requests %v", requests)
	expect.That(t, container.Resources.Requests == nil, "The JobSet is changed")
}
