// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func requesting(list corev1.ResourceList) corev1.Container {
	return corev1.Container{Resources: corev1.ResourceRequirements{Requests: list}}
}

func limitedTo(list corev1.ResourceList) corev1.Container {
	return corev1.Container{Resources: corev1.ResourceRequirements{Limits: list}}
}

func TestIsResource(t *testing.T) {
	for name, tc := range map[string]struct {
		name corev1.ResourceName
		want bool
	}{
		"a whole GPU":                             {name: "nvidia.com/gpu", want: true},
		"a renamed shared GPU":                    {name: "nvidia.com/gpu.shared", want: true},
		"a MIG profile":                           {name: "nvidia.com/mig-1g.10gb", want: true},
		"a MIG profile with an attribute":         {name: "nvidia.com/mig-1g.10gb.me", want: true},
		"a shared MIG profile":                    {name: "nvidia.com/mig-3g.40gb.shared", want: true},
		"a name that only starts like a GPU":      {name: "nvidia.com/gpu-foo"},
		"a name that only starts like MIG":        {name: "nvidia.com/migx"},
		"a MIG prefix without a profile":          {name: "nvidia.com/mig-"},
		"a MIG prefix with only the suffix":       {name: "nvidia.com/mig-.shared"},
		"a doubled suffix":                        {name: "nvidia.com/gpu.shared.shared"},
		"another vendor":                          {name: "amd.com/gpu"},
		"another vendor's MIG":                    {name: "amd.com/mig-1g.10gb"},
		"the quota form of a whole GPU":           {name: "requests.nvidia.com/gpu"},
		"a GPU without a domain":                  {name: "gpu"},
		"NVIDIA's domain without a resource":      {name: "nvidia.com/"},
		"a core resource":                         {name: corev1.ResourceCPU},
		"upper case, which is another name":       {name: "nvidia.com/GPU"},
		"the empty name, as of an unset resource": {name: ""},
	} {
		t.Run(name, func(t *testing.T) { expect.Same(t, "Unexpected IsResource", tc.want, IsResource(tc.name)) })
	}
}

func TestResources(t *testing.T) {
	for name, tc := range map[string]struct {
		pod  corev1.PodSpec
		want []corev1.ResourceName
	}{
		"no containers": {},
		"no GPUs":       {pod: corev1.PodSpec{Containers: []corev1.Container{requesting(kit.Amounts("cpu", "1", "amd.com/gpu", "1"))}}},
		"limits only":   {pod: corev1.PodSpec{Containers: []corev1.Container{limitedTo(kit.Amounts("nvidia.com/gpu", "8"))}}, want: []corev1.ResourceName{"nvidia.com/gpu"}},
		"requests only": {pod: corev1.PodSpec{Containers: []corev1.Container{requesting(kit.Amounts("nvidia.com/gpu", "8"))}}, want: []corev1.ResourceName{"nvidia.com/gpu"}},
		"init containers only": {pod: corev1.PodSpec{InitContainers: []corev1.Container{limitedTo(kit.Amounts("nvidia.com/mig-1g.10gb", "1"))}},
			want: []corev1.ResourceName{"nvidia.com/mig-1g.10gb"}},
		"zero amounts": {pod: corev1.PodSpec{
			InitContainers: []corev1.Container{limitedTo(kit.Amounts("nvidia.com/gpu.shared", "0"))},
			Containers:     []corev1.Container{requesting(kit.Amounts("nvidia.com/gpu", "0"))},
		}},
		"a zero request beside a limit": {pod: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
			Requests: kit.Amounts("nvidia.com/gpu", "0"), Limits: kit.Amounts("nvidia.com/gpu", "1"),
		}}}}, want: []corev1.ResourceName{"nvidia.com/gpu"}},
		"the same resource in many places stands once, and all are sorted": {pod: corev1.PodSpec{
			InitContainers: []corev1.Container{limitedTo(kit.Amounts("nvidia.com/mig-3g.40gb", "1", "nvidia.com/gpu", "1"))},
			Containers: []corev1.Container{
				requesting(kit.Amounts("nvidia.com/mig-3g.40gb", "2", "nvidia.com/gpu.shared", "1")),
				limitedTo(kit.Amounts("nvidia.com/mig-1g.10gb", "1", "nvidia.com/gpu", "1", "memory", "1Gi")),
			},
		}, want: []corev1.ResourceName{"nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb"}},
	} {
		t.Run(name, func(t *testing.T) {
			expect.Same(t, "Unexpected resources", tc.want, Resources(&tc.pod), cmpopts.EquateEmpty())
		})
	}
}

func TestTolerations(t *testing.T) {
	exists := func(key string) corev1.Toleration {
		return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
	}
	for name, tc := range map[string]struct {
		asked corev1.ResourceList
		want  []corev1.Toleration
	}{
		"no GPUs, no tolerations": {asked: kit.Amounts("cpu", "1")},
		"whole GPUs have one key": {asked: kit.Amounts("nvidia.com/gpu", "8"), want: []corev1.Toleration{exists("nvidia.com/gpu")}},
		"a MIG profile brings the provider's key and its own": {asked: kit.Amounts("nvidia.com/mig-1g.10gb", "1"),
			want: []corev1.Toleration{exists("nvidia.com/gpu"), exists("nvidia.com/mig-1g.10gb")}},
		"shared GPUs too": {asked: kit.Amounts("nvidia.com/gpu.shared", "1"), want: []corev1.Toleration{exists("nvidia.com/gpu"), exists("nvidia.com/gpu.shared")}},
		"whole and MIG together have no key twice": {asked: kit.Amounts("nvidia.com/mig-1g.10gb", "1", "nvidia.com/gpu", "1"),
			want: []corev1.Toleration{exists("nvidia.com/gpu"), exists("nvidia.com/mig-1g.10gb")}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.PodSpec{Containers: []corev1.Container{limitedTo(tc.asked)}}
			expect.Same(t, "Unexpected tolerations", tc.want, Tolerations(pod))
		})
	}
}
