// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"

	"github.com/kueue-trainer/kueue-trainer/pkg/held"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestHeld(t *testing.T) {
	wrote := func(manager, fields string, minutes int) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Time: ptr.To(minutesAgo(minutes)), FieldsV1: metav1.NewFieldsV1(fields)}
	}
	const label = `{"f:metadata":{"f:labels":{"f:kueue.x-k8s.io/queue-name":{}}}}`
	holds := func(s *scene) {
		s.Job.Labels[kueueconstants.QueueLabel] = held.Queue("gpus")
		s.Job.ManagedFields = []metav1.ManagedFieldsEntry{
			wrote("kubectl-trainjob", label, 9), wrote("other", label, 1), {Manager: held.FieldOwner, Time: ptr.To(minutesAgo(1))},
			wrote(held.FieldOwner, `{"f:spec":{"f:suspend":{}}}`, 2), wrote(held.FieldOwner, label, 4), wrote(held.FieldOwner, label, 3),
		}
	}
	heldBy := func(message string) State {
		s := stuck(Held, "Held", message, "kubectl trainjob resume -n team llm")
		s.Since = ptr.To(minutesAgo(3))
		return s
	}
	eachScene(t, "state", map[string]row[State]{
		"out of its queue":               {scene: changes{holds}, want: heldBy("is held out of queue gpus by its user")},
		"before it has a Workload again": {scene: changes{holds, withoutWorkload}, want: heldBy("is held out of queue gpus by its user")},
		"by somebody who may not see its Workload": {
			scene: changes{holds, func(s *scene) { s.Workload, s.WorkloadUnseen = nil, true }},
			want:  heldBy("is held out of queue gpus by its user; you may not see its Workload, nor so whether it still has quota"),
		},
		"while its pods end": {
			scene: changes{admitted, withPods(2, runningPod), holds},
			want:  state(Stopping, "Held", "is being stopped, to be held out of queue gpus; 2 pods still there, it keeps the quota until they are gone", ""),
		},
	}, StateOf)
	t.Run("by somebody else than the plugin", func(t *testing.T) {
		s := newScene(holds)
		s.Job.ManagedFields = s.Job.ManagedFields[:4]
		got := StateOf(s.facts(t))
		expect.That(t, got.Since == nil, "Unexpected time %v", got.Since)
	})
	t.Run("in a queue that somebody named so", func(t *testing.T) {
		s := newScene(holds)
		s.inventory.LocalQueues = append(s.inventory.LocalQueues, localQueue(held.Queue("gpus"), "gpus"))
		got := StateOf(s.facts(t))
		expect.That(t, got.Phase != Held, "Unexpected state %+v", got)
	})
}
