// SPDX-License-Identifier: Apache-2.0

package podset

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestSameResources(t *testing.T) {
	one := func() []kueue.PodSet {
		return []kueue.PodSet{{Name: "node", Count: 1, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: "init"}}, Containers: []corev1.Container{{Name: "node", Image: "a"}},
		}}}}
	}
	gpu := corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}
	always := corev1.ContainerRestartPolicyAlways
	cases := map[string]struct {
		change func([]kueue.PodSet)
		want   bool
	}{
		"nothing changed":            {change: func([]kueue.PodSet) {}, want: true},
		"another image":              {change: func(p []kueue.PodSet) { p[0].Template.Spec.Containers[0].Image = "b" }, want: true},
		"more pods":                  {change: func(p []kueue.PodSet) { p[0].Count = 8 }},
		"another PodSet":             {change: func(p []kueue.PodSet) { p[0].Name = "other" }},
		"a GPU as a limit":           {change: func(p []kueue.PodSet) { p[0].Template.Spec.Containers[0].Resources.Limits = gpu }},
		"a GPU in an init container": {change: func(p []kueue.PodSet) { p[0].Template.Spec.InitContainers[0].Resources.Requests = gpu }},
		"an init container runs on":  {change: func(p []kueue.PodSet) { p[0].Template.Spec.InitContainers[0].RestartPolicy = &always }},
		"one container less":         {change: func(p []kueue.PodSet) { p[0].Template.Spec.Containers = nil }},
		"overhead":                   {change: func(p []kueue.PodSet) { p[0].Template.Spec.Overhead = gpu }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			changed := one()
			tc.change(changed)
			expect.Same(t, "Unexpected SameResources", tc.want, SameResources(one(), changed))
		})
	}
}
