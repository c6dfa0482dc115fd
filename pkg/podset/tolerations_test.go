// SPDX-License-Identifier: Apache-2.0

package podset

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestAddTolerations(t *testing.T) {
	amd, intel := exists("amd.com/gpu"), exists("gpu.intel.com/i915")
	rules := []TolerationRule{
		{Resources: []string{"amd.com/gpu"}, Tolerations: []corev1.Toleration{amd}},
		{Resources: []string{"gpu.intel.com/*", "habana.ai/gaudi"}, Tolerations: []corev1.Toleration{intel}},
	}
	cases := map[string]struct {
		job  *jobBuilder
		want []corev1.Toleration
	}{
		"no resources":                      {job: makeJob("node")},
		"a resource of no rule":             {job: makeJob("node").gpus("example.com/npu")},
		"a resource by its name":            {job: makeJob("node").gpus("amd.com/gpu"), want: []corev1.Toleration{amd}},
		"only the whole name":               {job: makeJob("node").gpus("amd.com/gpu.shared")},
		"a resource by how its name begins": {job: makeJob("node").gpus("gpu.intel.com/xe"), want: []corev1.Toleration{intel}},
		"a resource by the rule's second":   {job: makeJob("node").gpus("habana.ai/gaudi"), want: []corev1.Toleration{intel}},
		"a toleration that is there":        {job: makeJob("node").gpus("amd.com/gpu").tolerations(amd), want: []corev1.Toleration{amd}},
		"beside NVIDIA's own":               {job: makeJob("node").gpus("nvidia.com/gpu"), want: []corev1.Toleration{exists("nvidia.com/gpu")}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			podSets := expect.Must(fromJobSet(jobSet(tc.job)))(t)
			for _, pass := range []string{"once", "twice"} {
				AddTolerations(podSets, rules)
				expect.Same(t, fmt.Sprintf("Applied %s: unexpected tolerations", pass), tc.want, podSets[0].Template.Spec.Tolerations, cmpopts.EquateEmpty())
			}
		})
	}
}
