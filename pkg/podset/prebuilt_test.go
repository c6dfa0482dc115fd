// SPDX-License-Identifier: Apache-2.0

package podset

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestDifference(t *testing.T) {
	nvidia := corev1.Toleration{Key: "nvidia.com/gpu", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
	spot := corev1.Toleration{Key: "spot", Operator: corev1.TolerationOpExists}
	team := corev1.Toleration{Key: "team", Operator: corev1.TolerationOpExists}
	rules := []TolerationRule{{Resources: []string{"nvidia.com/*"}, Tolerations: []corev1.Toleration{team}}}
	of := func(change func(*kueue.PodSet), tolerations ...corev1.Toleration) []kueue.PodSet {
		ps := kueue.PodSet{Name: "node", Count: 2}
		ps.Template.Spec.Tolerations = tolerations
		ps.Template.Spec.Containers = []corev1.Container{{Name: "node", Resources: corev1.ResourceRequirements{
			Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")}}}}
		if change != nil {
			change(&ps)
		}
		return []kueue.PodSet{ps}
	}
	job := of(nil, spot, nvidia, team)
	tests := map[string]struct {
		prebuilt []kueue.PodSet
		want     string
	}{
		"the same":                                {prebuilt: job},
		"what is added is missing":                {prebuilt: of(nil, spot)},
		"a part of what is added is missing":      {prebuilt: of(nil, spot, nvidia)},
		"the order is of no meaning":              {prebuilt: of(nil, team, nvidia, spot)},
		"what the TrainJob tolerates is missing":  {prebuilt: of(nil, nvidia, team), want: `PodSet "node" differs in template.spec.tolerations`},
		"it tolerates what the TrainJob does not": {prebuilt: of(nil, spot, corev1.Toleration{Operator: corev1.TolerationOpExists}), want: `PodSet "node" differs in template.spec.tolerations`},
		"other pods":                              {prebuilt: of(func(ps *kueue.PodSet) { ps.Count = 1 }), want: `PodSet "node" has 2 pods in the TrainJob, 1 in the Workload`},
		"another name":                            {prebuilt: of(func(ps *kueue.PodSet) { ps.Name = "main" }), want: `where the TrainJob has PodSet "node", the Workload has "main"`},
		"another image":                           {prebuilt: of(func(ps *kueue.PodSet) { ps.Template.Spec.Containers[0].Image = "b" }, spot), want: `PodSet "node" differs in template.spec.containers`},
		"an init container":                       {prebuilt: of(func(ps *kueue.PodSet) { ps.Template.Spec.InitContainers = []corev1.Container{{}} }, spot), want: `PodSet "node" differs in template.spec.initContainers`},
		"part of it may be admitted":              {prebuilt: of(func(ps *kueue.PodSet) { ps.MinCount = &ps.Count }, spot), want: `PodSet "node" differs in minCount`},
		"one more":                                {prebuilt: append(of(nil, spot), of(nil, spot)...), want: "the TrainJob has 1 PodSets, the Workload 2"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			expect.Same(t, "Unexpected Difference", tc.want, Difference(job, tc.prebuilt, rules))
		})
	}
}
