// SPDX-License-Identifier: Apache-2.0

package quantity

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestCheck(t *testing.T) {
	const gpu = "nvidia.com/gpu"
	type row struct {
		requests, limits corev1.ResourceList
		// want is the list, the name and a word of what is wrong.
		want [][3]string
	}
	expect.Rows(t, map[string]row{
		"nothing":                            {},
		"whole GPUs":                         {limits: kit.Amounts(gpu, "8")},
		"whole GPUs in thousandths":          {limits: kit.Amounts(gpu, "8000m")},
		"as many requested as the limit":     {requests: kit.Amounts(gpu, "8000m"), limits: kit.Amounts(gpu, "8")},
		"none of them":                       {requests: kit.Amounts(gpu, "0"), limits: kit.Amounts(gpu, "0")},
		"parts of CPUs, fewer than the most": {requests: kit.Amounts("cpu", "100m", "memory", "1Gi"), limits: kit.Amounts("cpu", "1", "memory", "2Gi")},
		"CPUs without a limit":               {requests: kit.Amounts("cpu", "1", "ephemeral-storage", "1Gi")},
		"huge pages":                         {limits: kit.Amounts("hugepages-2Mi", "4Mi"), requests: kit.Amounts("hugepages-2Mi", "4Mi", "cpu", "1")},
		"a resource of Kubernetes' own":      {requests: kit.Amounts("kubernetes.io/thing", "500m"), limits: kit.Amounts("kubernetes.io/thing", "1")},

		"a part of a GPU":                {limits: kit.Amounts(gpu, "0.5"), want: [][3]string{{"limits", gpu, "whole number"}}},
		"a part of a GPU requested":      {requests: kit.Amounts(gpu, "1.5"), limits: kit.Amounts(gpu, "1.5"), want: [][3]string{{"limits", gpu, "whole number"}, {"requests", gpu, "whole number"}}},
		"fewer than the limit":           {requests: kit.Amounts(gpu, "1"), limits: kit.Amounts(gpu, "8"), want: [][3]string{{"requests", gpu, "which is 8"}}},
		"more than the limit":            {requests: kit.Amounts("cpu", "2"), limits: kit.Amounts("cpu", "1"), want: [][3]string{{"requests", "cpu", "which is 1"}}},
		"a device without a limit":       {requests: kit.Amounts(gpu, "1", "cpu", "1"), want: [][3]string{{"requests", gpu, "needs a limit"}}},
		"huge pages without a limit":     {requests: kit.Amounts("hugepages-1Gi", "1Gi", "memory", "1Gi"), want: [][3]string{{"requests", "hugepages-1Gi", "needs a limit"}}},
		"huge pages alone":               {limits: kit.Amounts("hugepages-2Mi", "4Mi"), requests: kit.Amounts("hugepages-2Mi", "4Mi"), want: [][3]string{{"limits", "hugepages-2Mi", "cpu or memory"}}},
		"a part of a huge page":          {limits: kit.Amounts("hugepages-2Mi", "3Mi", "cpu", "1"), want: [][3]string{{"limits", "hugepages-2Mi", "whole pages"}}},
		"huge pages of no size":          {limits: kit.Amounts("hugepages-big", "4Mi", "cpu", "1"), want: [][3]string{{"limits", "hugepages-big", "whole pages"}}},
		"a name of a ResourceQuota":      {limits: kit.Amounts("requests.nvidia.com/gpu", "1"), want: [][3]string{{"limits", "requests.nvidia.com/gpu", "knows no such resource"}}},
		"less than nothing":              {limits: kit.Amounts("memory", "-1"), requests: kit.Amounts(gpu, "-1"), want: [][3]string{{"limits", "memory", "negative"}, {"requests", gpu, "negative"}}},
		"more than can be counted":       {limits: kit.Amounts(gpu, "6148914691236517206"), want: [][3]string{{"limits", gpu, "not be more than"}}},
		"a name without a domain":        {limits: kit.Amounts("gpu", "1"), want: [][3]string{{"limits", "gpu", "knows no such resource"}}},
		"a resource that nodes have":     {limits: kit.Amounts("pods", "1"), want: [][3]string{{"limits", "pods", "knows no such resource"}}},
		"a name that cannot be one":      {limits: kit.Amounts("a b", "1"), want: [][3]string{{"limits", "a b", "alphanumeric"}}},
		"requests wrong in several ways": {requests: kit.Amounts("a", "1", "b", "1"), want: [][3]string{{"requests", "a", "no such"}, {"requests", "b", "no such"}}},
	}, func(t *testing.T, tc row) {
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
