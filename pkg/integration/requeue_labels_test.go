// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"maps"
	"strings"
	"testing"

	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestMovedOn(t *testing.T) {
	withClass := &kueue.PriorityClassRef{Group: "kueue.x-k8s.io", Kind: kueue.WorkloadPriorityClassKind, Name: "low"}
	ofPods := &kueue.PriorityClassRef{Group: "scheduling.k8s.io", Kind: kueue.PodPriorityClassKind, Name: "pods"}
	cases := map[string]struct {
		labels map[string]string
		wl     kueue.WorkloadSpec
		want   string
	}{
		"the queue and nothing else":         {wl: kueue.WorkloadSpec{QueueName: "q"}},
		"another queue":                      {wl: kueue.WorkloadSpec{QueueName: "former"}, want: "queue"},
		"a class where there was none":       {labels: map[string]string{"kueue.x-k8s.io/priority-class": "high"}, wl: kueue.WorkloadSpec{QueueName: "q"}, want: "priority class"},
		"a class in place of the pods'":      {labels: map[string]string{"kueue.x-k8s.io/priority-class": "high"}, wl: kueue.WorkloadSpec{QueueName: "q", PriorityClassRef: ofPods}, want: "priority class"},
		"another class, which Kueue follows": {labels: map[string]string{"kueue.x-k8s.io/priority-class": "high"}, wl: kueue.WorkloadSpec{QueueName: "q", PriorityClassRef: withClass}},
		"the pods' class alone":              {wl: kueue.WorkloadSpec{QueueName: "q", PriorityClassRef: ofPods}},
		"a time limit":                       {labels: map[string]string{"kueue.x-k8s.io/max-exec-time-seconds": "9"}, wl: kueue.WorkloadSpec{QueueName: "q"}, want: "time limit"},
		"the same time limit":                {labels: map[string]string{"kueue.x-k8s.io/max-exec-time-seconds": "9"}, wl: kueue.WorkloadSpec{QueueName: "q", MaximumExecutionTimeSeconds: ptr.To[int32](9)}},
		"no time limit any more":             {wl: kueue.WorkloadSpec{QueueName: "q", MaximumExecutionTimeSeconds: ptr.To[int32](9)}, want: "time limit"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			j := &job{}
			j.Labels = map[string]string{"kueue.x-k8s.io/queue-name": "q"}
			maps.Copy(j.Labels, tc.labels)
			got := j.movedOn(&kueue.Workload{Spec: tc.wl})
			expect.That(t, strings.Contains(got, tc.want) && (got == "") == (tc.want == ""), "movedOn = %q, want %q", got, tc.want)
		})
	}
}
