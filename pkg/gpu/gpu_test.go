// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func containers(all ...corev1.ResourceRequirements) []corev1.Container {
	return expect.Each(all, func(r corev1.ResourceRequirements) corev1.Container { return corev1.Container{Resources: r} })
}

func requests(amounts ...string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: kit.Amounts(amounts...)}
}

func limits(amounts ...string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Limits: kit.Amounts(amounts...)}
}

func TestIsResource(t *testing.T) {
	expect.Answers(t, IsResource, map[string]expect.Row[corev1.ResourceName, bool]{
		"a whole GPU":                             {In: "nvidia.com/gpu", Want: true},
		"a renamed shared GPU":                    {In: "nvidia.com/gpu.shared", Want: true},
		"a MIG profile":                           {In: "nvidia.com/mig-1g.10gb", Want: true},
		"a MIG profile with an attribute":         {In: "nvidia.com/mig-1g.10gb.me", Want: true},
		"a shared MIG profile":                    {In: "nvidia.com/mig-3g.40gb.shared", Want: true},
		"a name that only starts like a GPU":      {In: "nvidia.com/gpu-foo"},
		"a name that only starts like MIG":        {In: "nvidia.com/migx"},
		"a MIG prefix without a profile":          {In: "nvidia.com/mig-"},
		"a MIG prefix with only the suffix":       {In: "nvidia.com/mig-.shared"},
		"a doubled suffix":                        {In: "nvidia.com/gpu.shared.shared"},
		"another vendor":                          {In: "amd.com/gpu"},
		"another vendor's MIG":                    {In: "amd.com/mig-1g.10gb"},
		"the quota form of a whole GPU":           {In: "requests.nvidia.com/gpu"},
		"a GPU without a domain":                  {In: "gpu"},
		"NVIDIA's domain without a resource":      {In: "nvidia.com/"},
		"a core resource":                         {In: corev1.ResourceCPU},
		"upper case, which is another name":       {In: "nvidia.com/GPU"},
		"the empty name, as of an unset resource": {In: ""},
	})
}

func TestResources(t *testing.T) {
	of := func(pod corev1.PodSpec) []corev1.ResourceName { return Resources(&pod) }
	both := corev1.ResourceRequirements{Requests: kit.Amounts("nvidia.com/gpu", "0"), Limits: kit.Amounts("nvidia.com/gpu", "1")}
	expect.Answers(t, of, map[string]expect.Row[corev1.PodSpec, []corev1.ResourceName]{
		"no containers":                 {},
		"no GPUs":                       {In: corev1.PodSpec{Containers: containers(requests("cpu", "1", "amd.com/gpu", "1"))}},
		"limits only":                   {In: corev1.PodSpec{Containers: containers(limits("nvidia.com/gpu", "8"))}, Want: []corev1.ResourceName{"nvidia.com/gpu"}},
		"requests only":                 {In: corev1.PodSpec{Containers: containers(requests("nvidia.com/gpu", "8"))}, Want: []corev1.ResourceName{"nvidia.com/gpu"}},
		"init containers only":          {In: corev1.PodSpec{InitContainers: containers(limits("nvidia.com/mig-1g.10gb", "1"))}, Want: []corev1.ResourceName{"nvidia.com/mig-1g.10gb"}},
		"zero amounts":                  {In: corev1.PodSpec{InitContainers: containers(limits("nvidia.com/gpu.shared", "0")), Containers: containers(requests("nvidia.com/gpu", "0"))}},
		"a zero request beside a limit": {In: corev1.PodSpec{Containers: containers(both)}, Want: []corev1.ResourceName{"nvidia.com/gpu"}},
		"the same resource in many places stands once, and all are sorted": {In: corev1.PodSpec{
			InitContainers: containers(limits("nvidia.com/mig-3g.40gb", "1", "nvidia.com/gpu", "1")),
			Containers:     containers(requests("nvidia.com/mig-3g.40gb", "2", "nvidia.com/gpu.shared", "1"), limits("nvidia.com/mig-1g.10gb", "1", "nvidia.com/gpu", "1", "memory", "1Gi")),
		}, Want: []corev1.ResourceName{"nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb"}},
	}, cmpopts.EquateEmpty())
}

func TestTolerations(t *testing.T) {
	exists := func(key string) corev1.Toleration {
		return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
	}
	of := func(asked corev1.ResourceRequirements) []corev1.Toleration {
		return Tolerations(&corev1.PodSpec{Containers: containers(asked)})
	}
	expect.Answers(t, of, map[string]expect.Row[corev1.ResourceRequirements, []corev1.Toleration]{
		"no GPUs, no tolerations": {In: limits("cpu", "1")},
		"whole GPUs have one key": {In: limits("nvidia.com/gpu", "8"), Want: []corev1.Toleration{exists("nvidia.com/gpu")}},
		"a MIG profile brings the provider's key and its own": {In: limits("nvidia.com/mig-1g.10gb", "1"),
			Want: []corev1.Toleration{exists("nvidia.com/gpu"), exists("nvidia.com/mig-1g.10gb")}},
		"shared GPUs too": {In: limits("nvidia.com/gpu.shared", "1"), Want: []corev1.Toleration{exists("nvidia.com/gpu"), exists("nvidia.com/gpu.shared")}},
		"whole and MIG together have no key twice": {In: limits("nvidia.com/mig-1g.10gb", "1", "nvidia.com/gpu", "1"),
			Want: []corev1.Toleration{exists("nvidia.com/gpu"), exists("nvidia.com/mig-1g.10gb")}},
	})
}
