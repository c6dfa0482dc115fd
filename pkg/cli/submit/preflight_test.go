// SPDX-License-Identifier: Apache-2.0

package submit

import (
	"context"
	"strings"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
)

func TestPreflight(t *testing.T) {
	ref := func(kind, name string) trainer.RuntimeRef { return trainer.RuntimeRef{Kind: ptr.To(kind), Name: name} }
	cases := map[string]struct {
		ref       trainer.RuntimeRef
		request   request
		forbidden bool

		says, note string
		builtin    bool
	}{
		"all is there": {
			ref: ref("ClusterTrainingRuntime", "torch"), request: request{queue: "gpus", priority: "high"},
		},
		"a runtime with its own trainer": {ref: ref("ClusterTrainingRuntime", "tune"), builtin: true},
		"no such runtime": {
			ref: ref("ClusterTrainingRuntime", "x"), says: "there is no ClusterTrainingRuntime x; there are: torch, tune",
		},
		"no such runtime in the namespace": {
			ref: ref("TrainingRuntime", "torch"), says: "there is no TrainingRuntime torch in namespace ns, nor any other",
		},
		"no such queue": {
			ref: ref("ClusterTrainingRuntime", "torch"), request: request{queue: "x"}, says: "there is no LocalQueue x in namespace ns; there are: cpus, drained, gpus, held, inactive",
		},
		"no such priority": {
			ref: ref("ClusterTrainingRuntime", "torch"), request: request{priority: "x"}, says: "there is no WorkloadPriorityClass x; there are: high",
		},
		"a stopped LocalQueue": {
			ref: ref("ClusterTrainingRuntime", "torch"), request: request{queue: "held"},
			note: "warning: LocalQueue held is stopped (stopPolicy: Hold): the TrainJob will wait until an admin starts it again",
		},
		"a stopped ClusterQueue": {
			ref: ref("ClusterTrainingRuntime", "torch"), request: request{queue: "drained"},
			note: "warning: ClusterQueue stopped, which LocalQueue drained leads to, is stopped (stopPolicy: HoldAndDrain): ",
		},
		"a LocalQueue that leads nowhere": {
			ref: ref("ClusterTrainingRuntime", "torch"), request: request{queue: "inactive"},
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
			p := &preflight{client: newClient(t, tc.forbidden), notes: &notes}
			tc.request.namespace = "ns"
			_, builtin, err := p.runtime(t.Context(), tc.ref, "ns")
			if err == nil {
				err = p.queue(t.Context(), &tc.request)
			}
			said := kit.Text(err)
			if said != tc.says {
				t.Errorf("The error is %q and not %q", said, tc.says)
			}
			if !strings.HasPrefix(notes.String(), tc.note) || tc.note == "" && notes.Len() > 0 {
				t.Errorf("The notes are %q and not %q", notes.String(), tc.note)
			}
			if builtin != tc.builtin {
				t.Errorf("The runtime brings its trainer: %v", builtin)
			}
		})
	}
}

// newClient returns a cluster with a few names, or one that lets nothing be read.
func newClient(t *testing.T, forbidden bool) client.Client {
	t.Helper()
	scheme := kit.Must(cluster.Scheme())(t)
	tune := &trainer.ClusterTrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: "tune", Labels: map[string]string{frameworkLabel: torchtune}}}
	queue := func(namespace, name string) *kueue.LocalQueue {
		return &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	held, drained, inactive := queue("ns", "held"), queue("ns", "drained"), queue("ns", "inactive")
	held.Spec.StopPolicy = ptr.To(kueue.Hold)
	drained.Spec.ClusterQueue = "stopped"
	inactive.Status.Conditions = []metav1.Condition{{Type: kueue.LocalQueueActive, Status: metav1.ConditionFalse, Message: "no such ClusterQueue"}}
	stopped := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "stopped"}, Spec: kueue.ClusterQueueSpec{StopPolicy: ptr.To(kueue.HoldAndDrain)}}
	return fake.NewClientBuilder().WithScheme(scheme).
		WithObjects(tune, &trainer.ClusterTrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: "torch"}},
			queue("ns", "gpus"), queue("ns", "cpus"), queue("other", "x"),
			held, drained, inactive, stopped,
			&kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}}).
		WithInterceptorFuncs(interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if forbidden {
				return apierrors.NewForbidden(schema.GroupResource{}, key.Name, nil)
			}
			return c.Get(ctx, key, obj, opts...)
		}}).Build()
}
