// SPDX-License-Identifier: Apache-2.0

package quantity

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func list(nameAndAmount ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(nameAndAmount); i += 2 {
		out[corev1.ResourceName(nameAndAmount[i])] = resource.MustParse(nameAndAmount[i+1])
	}
	return out
}

func TestCheck(t *testing.T) {
	const gpu = "nvidia.com/gpu"
	cases := map[string]struct {
		requests, limits corev1.ResourceList
		// want is the list, the name and a word of what is wrong.
		want [][3]string
	}{
		"nothing":                            {},
		"whole GPUs":                         {limits: list(gpu, "8")},
		"whole GPUs in thousandths":          {limits: list(gpu, "8000m")},
		"as many requested as the limit":     {requests: list(gpu, "8000m"), limits: list(gpu, "8")},
		"none of them":                       {requests: list(gpu, "0"), limits: list(gpu, "0")},
		"parts of CPUs, fewer than the most": {requests: list("cpu", "100m", "memory", "1Gi"), limits: list("cpu", "1", "memory", "2Gi")},
		"CPUs without a limit":               {requests: list("cpu", "1", "ephemeral-storage", "1Gi")},
		"huge pages":                         {limits: list("hugepages-2Mi", "4Mi"), requests: list("hugepages-2Mi", "4Mi")},
		"a resource of Kubernetes' own":      {requests: list("kubernetes.io/thing", "500m"), limits: list("kubernetes.io/thing", "1")},

		"a part of a GPU":                {limits: list(gpu, "0.5"), want: [][3]string{{"limits", gpu, "whole number"}}},
		"a part of a GPU requested":      {requests: list(gpu, "1.5"), limits: list(gpu, "1.5"), want: [][3]string{{"limits", gpu, "whole number"}, {"requests", gpu, "whole number"}}},
		"fewer than the limit":           {requests: list(gpu, "1"), limits: list(gpu, "8"), want: [][3]string{{"requests", gpu, "which is 8"}}},
		"more than the limit":            {requests: list("cpu", "2"), limits: list("cpu", "1"), want: [][3]string{{"requests", "cpu", "which is 1"}}},
		"a device without a limit":       {requests: list(gpu, "1", "cpu", "1"), want: [][3]string{{"requests", gpu, "needs a limit"}}},
		"huge pages without a limit":     {requests: list("hugepages-1Gi", "1Gi"), want: [][3]string{{"requests", "hugepages-1Gi", "needs a limit"}}},
		"less than nothing":              {limits: list("memory", "-1"), requests: list(gpu, "-1"), want: [][3]string{{"limits", "memory", "negative"}, {"requests", gpu, "negative"}}},
		"more than can be counted":       {limits: list(gpu, "6148914691236517206"), want: [][3]string{{"limits", gpu, "not be more than"}}},
		"a name without a domain":        {limits: list("gpu", "1"), want: [][3]string{{"limits", "gpu", "knows no such resource"}}},
		"a resource that nodes have":     {limits: list("pods", "1"), want: [][3]string{{"limits", "pods", "knows no such resource"}}},
		"a name that cannot be one":      {limits: list("a b", "1"), want: [][3]string{{"limits", "a b", "alphanumeric"}}},
		"requests wrong in several ways": {requests: list("a", "1", "b", "1"), want: [][3]string{{"requests", "a", "no such"}, {"requests", "b", "no such"}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got [][3]string
			for i, wrong := range Check(&corev1.ResourceRequirements{Requests: tc.requests, Limits: tc.limits}) {
				why := wrong.Why
				if i < len(tc.want) && strings.Contains(why, tc.want[i][2]) {
					why = tc.want[i][2]
				}
				got = append(got, [3]string{wrong.List, string(wrong.Name), why})
			}
			expect.Same(t, "Unexpected findings", tc.want, got)
		})
	}
}
