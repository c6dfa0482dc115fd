// SPDX-License-Identifier: Apache-2.0

package submit

import (
	"strings"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestPreflight(t *testing.T) {
	ref := func(kind, name string) trainer.RuntimeRef { return trainer.RuntimeRef{Kind: ptr.To(kind), Name: name} }
	torch := ref("ClusterTrainingRuntime", "torch")
	cases := map[string]struct {
		ref       trainer.RuntimeRef
		request   request
		forbidden bool

		says, note string
		builtin    bool
	}{
		"all is there":                     {ref: torch, request: request{queue: "gpus", priority: "high"}},
		"a runtime with its own trainer":   {ref: ref("ClusterTrainingRuntime", "tune"), builtin: true},
		"no such runtime":                  {ref: ref("ClusterTrainingRuntime", "x"), says: "there is no ClusterTrainingRuntime x; there are: torch, tune"},
		"no such runtime in the namespace": {ref: ref("TrainingRuntime", "torch"), says: "there is no TrainingRuntime torch in namespace ns, nor any other"},
		"no such queue": {
			ref: torch, request: request{queue: "x"}, says: "there is no LocalQueue x in namespace ns; there are: cpus, drained, gpus, held, inactive",
		},
		"no such priority": {ref: torch, request: request{priority: "x"}, says: "there is no WorkloadPriorityClass x; there are: high"},
		"a stopped LocalQueue": {
			ref: torch, request: request{queue: "held"},
			note: "warning: LocalQueue held is stopped (stopPolicy: Hold): the TrainJob will wait until an admin starts it again",
		},
		"a stopped ClusterQueue": {
			ref: torch, request: request{queue: "drained"},
			note: "warning: ClusterQueue stopped, which LocalQueue drained leads to, is stopped (stopPolicy: HoldAndDrain): ",
		},
		"a LocalQueue that leads nowhere": {
			ref: torch, request: request{queue: "inactive"},
			note: "warning: LocalQueue inactive is not active: no such ClusterQueue; the TrainJob will wait until it is",
		},
		"what the user may not see is left to the API server": {
			ref: ref("ClusterTrainingRuntime", "x"), request: request{queue: "x", priority: "x"}, forbidden: true,
			note: "note: ClusterTrainingRuntime x could not be looked at",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var notes strings.Builder
			p := &preflight{client: newClient(tc.forbidden), notes: &notes}
			tc.request.namespace = "ns"
			_, builtin, err := p.runtime(t.Context(), tc.ref, "ns")
			if err == nil {
				err = p.queue(t.Context(), &tc.request)
			}
			expect.Same(t, "Unexpected error", tc.says, expect.Text(err))
			expect.That(t, strings.HasPrefix(notes.String(), tc.note) && (tc.note != "" || notes.Len() == 0),
				"The notes are %q and not %q", notes.String(), tc.note)
			expect.Same(t, "Unexpected trainer of the runtime", tc.builtin, builtin)
		})
	}
}

// newClient returns a cluster with a few names, or one that lets nothing be read.
func newClient(forbidden bool) client.Client {
	tune := &trainer.ClusterTrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: "tune", Labels: map[string]string{frameworkLabel: torchtune}}}
	held, drained, inactive := kit.LocalQueue("ns", "held", ""), kit.LocalQueue("ns", "drained", "stopped"), kit.LocalQueue("ns", "inactive", "")
	held.Spec.StopPolicy = ptr.To(kueue.Hold)
	inactive.Status.Conditions = []metav1.Condition{{Type: kueue.LocalQueueActive, Status: metav1.ConditionFalse, Message: "no such ClusterQueue"}}
	stopped := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "stopped"}, Spec: kueue.ClusterQueueSpec{StopPolicy: ptr.To(kueue.HoldAndDrain)}}
	return kit.Fake(kit.Scheme(trainjob.AddToScheme), tune, &trainer.ClusterTrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: "torch"}},
		kit.LocalQueue("ns", "gpus", ""), kit.LocalQueue("ns", "cpus", ""), kit.LocalQueue("other", "x", ""),
		held, drained, inactive, stopped, kit.Priority("high", 0)).
		WithInterceptorFuncs(kit.RefusingGet(func(client.Object, client.ObjectKey) error {
			if forbidden {
				return kit.Forbidden("objects")
			}
			return nil
		})).Build()
}
