// SPDX-License-Identifier: Apache-2.0

package podset

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestSameSelection(t *testing.T) {
	one := func() []kueue.PodSet {
		return []kueue.PodSet{{
			Name: "node", Count: 1, TopologyRequest: &kueue.PodSetTopologyRequest{Required: ptr.To("rack")},
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				NodeSelector: map[string]string{"pool": "h100"}, PriorityClassName: "high", RuntimeClassName: ptr.To("nvidia"),
				Affinity:   &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}},
				Containers: []corev1.Container{{Name: "node", Image: "a"}},
			}},
		}}
	}
	cases := map[string]struct {
		change func(*kueue.PodSet)
		want   bool
	}{
		"nothing changed":       {change: func(*kueue.PodSet) {}, want: true},
		"another image":         {change: func(p *kueue.PodSet) { p.Template.Spec.Containers[0].Image = "b" }, want: true},
		"more pods":             {change: func(p *kueue.PodSet) { p.Count = 8 }, want: true},
		"another PodSet":        {change: func(p *kueue.PodSet) { p.Name = "other" }},
		"another node selector": {change: func(p *kueue.PodSet) { p.Template.Spec.NodeSelector["pool"] = "a100" }},
		"one key more":          {change: func(p *kueue.PodSet) { p.Template.Spec.NodeSelector["zone"] = "z" }},
		"no affinity":           {change: func(p *kueue.PodSet) { p.Template.Spec.Affinity = nil }},
		"another runtime class": {change: func(p *kueue.PodSet) { p.Template.Spec.RuntimeClassName = nil }},
		"another priority":      {change: func(p *kueue.PodSet) { p.Template.Spec.PriorityClassName = "low" }},
		"another topology":      {change: func(p *kueue.PodSet) { p.TopologyRequest.Required = ptr.To("block") }},
		"no topology":           {change: func(p *kueue.PodSet) { p.TopologyRequest = nil }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			changed := one()
			tc.change(&changed[0])
			expect.Same(t, "Unexpected SameSelection", tc.want, SameSelection(one(), changed))
			expect.That(t, !SameSelection(one(), append(changed, changed[0])), "a list with one PodSet more is not the same")
		})
	}
}
