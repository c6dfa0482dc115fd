// SPDX-License-Identifier: Apache-2.0

package submit

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestPreflight(t *testing.T) {
	ref := func(kind, name string) trainer.RuntimeRef { return trainer.RuntimeRef{Kind: ptr.To(kind), Name: name} }
	torch := ref("ClusterTrainingRuntime", "torch")
	type row struct {
		ref                trainer.RuntimeRef
		request            request
		forbidden, builtin bool
		says, note         string
	}
	expect.Rows(t, map[string]row{
		"all is there":                     {ref: torch, request: request{queue: "gpus", priority: "high"}},
		"a runtime with its own trainer":   {ref: ref("ClusterTrainingRuntime", "tune"), builtin: true},
		"no such runtime":                  {ref: ref("ClusterTrainingRuntime", "x"), says: "there is no ClusterTrainingRuntime x; there are: torch, tune"},
		"no such runtime in the namespace": {ref: ref("TrainingRuntime", "torch"), says: "there is no TrainingRuntime torch in namespace ns, nor any other"},
		"no such queue":                    {ref: torch, request: request{queue: "x"}, says: "there is no LocalQueue x in namespace ns; there are: cpus, drained, gpus, held, inactive"},
		"no such priority":                 {ref: torch, request: request{priority: "x"}, says: "there is no WorkloadPriorityClass x; there are: high"},
		"a stopped LocalQueue": {ref: torch, request: request{queue: "held"},
			note: "warning: LocalQueue held is stopped (stopPolicy: Hold): the TrainJob will wait until an admin starts it again"},
		"a stopped ClusterQueue": {ref: torch, request: request{queue: "drained"},
			note: "warning: ClusterQueue stopped, which LocalQueue drained leads to, is stopped (stopPolicy: HoldAndDrain): "},
		"a LocalQueue that leads nowhere": {ref: torch, request: request{queue: "inactive"},
			note: "warning: LocalQueue inactive is not active: no such ClusterQueue; the TrainJob will wait until it is"},
		"a level that a topology has": {ref: torch, request: request{topology: "required=rack"}},
		"a level that none has": {ref: torch, request: request{topology: "preferred=nosuch"},
			note: "warning: no topology has level nosuch; there are: host, rack: the TrainJob will wait until one has it\n"},
		"what the user may not see is left to the API server": {ref: ref("ClusterTrainingRuntime", "x"), request: request{queue: "x", priority: "x"}, forbidden: true,
			note: "note: ClusterTrainingRuntime x could not be looked at"},
	}, func(t *testing.T, tc row) {
		var notes strings.Builder
		p := &preflight{client: newClient(tc.forbidden), notes: &notes}
		tc.request.namespace = "ns"
		_, builtin, err := p.runtime(t.Context(), tc.ref, "ns")
		if err == nil {
			err = p.queue(t.Context(), &tc.request)
		}
		expect.Same(t, "Unexpected error", tc.says, expect.Text(err))
		expect.That(t, strings.HasPrefix(notes.String(), tc.note) && (tc.note != "" || notes.Len() == 0), "The notes are %q and not %q", notes.String(), tc.note)
		expect.Same(t, "Unexpected trainer of the runtime", tc.builtin, builtin)
	})
}

func TestGenerationThatMayNotBeSeen(t *testing.T) {
	var notes strings.Builder
	got := expect.Must((&preflight{client: newClient(true), notes: &notes}).generation(t.Context()))(t)
	expect.Same(t, "Unexpected Trainer", trainjob.Trainer23, got)
	expect.Same(t, "Unexpected note", "note: you may not get CRD trainjobs.trainer.kubeflow.org, so the newest Trainer is assumed: "+
		"ask an admin for ClusterRole kueue-trainer-queues-viewer\n", notes.String())
}

// TestTopologyOfAnUnseenRuntime tells what may be missing: a launcher that trains beside node.
func TestTopologyOfAnUnseenRuntime(t *testing.T) {
	const alone = "warning: --topology is set for replicated job node alone; a launcher that trains beside it, as a runtime of MPI may have, is left out, because "
	type row struct {
		runtime, dryRun, topology string
		want                      string
		seen                      bool
	}
	expect.Rows(t, map[string]row{
		"of the cluster": {runtime: "torch", topology: "required=rack",
			want: alone + "you may not get ClusterTrainingRuntime torch: ask an admin for ClusterRole kueue-trainer-queues-viewer\n"},
		"of the namespace": {runtime: "trainingruntime/mine", topology: "required=rack",
			want: alone + "you may not get TrainingRuntime mine: ask an admin for ClusterRole kueue-trainer-user in the namespace\n"},
		"for which no cluster is asked": {runtime: "torch", dryRun: "client", topology: "required=rack",
			want: alone + "no cluster is asked for the runtime: use --dry-run=server\n"},
		"without a topology": {runtime: "torch"},
		"that is seen":       {runtime: "torch", topology: "required=rack", seen: true},
	}, func(t *testing.T, tc row) {
		streams, _, _, told := genericiooptions.NewTestIOStreams()
		c := &command{request: request{name: "a", namespace: "ns", runtime: tc.runtime, topology: tc.topology}, streams: streams, printer: printers.NewDiscardingPrinter()}
		api := kit.Gets(newClient(!tc.seen), func(obj client.Object, _ client.ObjectKey) error {
			if _, is := obj.(*apiextensionsv1.CustomResourceDefinition); is {
				return kit.Forbidden("customresourcedefinitions")
			}
			return nil
		})
		if tc.dryRun == "client" {
			expect.NoError(t, c.printUnasked())
		} else {
			_, err := c.prepare(t.Context(), &preflight{client: api, notes: io.Discard})
			expect.Same(t, "Seen to have no replicated job: "+expect.Text(err), tc.seen && tc.topology != "", err != nil)
		}
		expect.Same(t, "Unexpected warning", tc.want, told.String())
	})
}

// TestQueueThatWasJustMade has Kueue look at it a moment later, or not at all.
func TestQueueThatWasJustMade(t *testing.T) {
	const warning = "warning: LocalQueue new is not active: Can't submit new workloads to clusterQueue; the TrainJob will wait until it is\n"
	type row struct {
		age, activeAfter, waits time.Duration
		want                    string
	}
	expect.Rows(t, map[string]row{
		"and is active soon":            {activeAfter: time.Second, waits: time.Second},
		"and is active never":           {activeAfter: time.Hour, want: warning, waits: patience},
		"or not, and is not active":     {age: time.Hour, activeAfter: 2 * time.Hour, want: warning},
		"and was active from the start": {},
	}, func(t *testing.T, tc row) {
		synctest.Test(t, func(t *testing.T) {
			begun := time.Now()
			queue := kit.LocalQueue("ns", "new", "")
			queue.CreationTimestamp = metav1.NewTime(begun.Add(-tc.age))
			c := kit.Fake(kit.Scheme(trainjob.AddToScheme), queue).WithInterceptorFuncs(interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
					err := c.Get(ctx, key, obj)
					if queue, is := obj.(*kueue.LocalQueue); is {
						active := metav1.Condition{Type: kueue.LocalQueueActive, Status: metav1.ConditionFalse, Message: "Can't submit new workloads to clusterQueue"}
						if time.Since(begun) >= tc.activeAfter-tc.age {
							active.Status = metav1.ConditionTrue
						}
						queue.Status.Conditions = []metav1.Condition{active}
					}
					return err
				},
			}).Build()
			var notes strings.Builder
			expect.NoError(t, (&preflight{client: c, notes: &notes}).queue(t.Context(), &request{queue: "new", namespace: "ns"}))
			expect.Same(t, "Unexpected note", tc.want, notes.String())
			expect.Same(t, "Unexpected wait", tc.waits, time.Since(begun))
		})
	})
}

// TestOutside has it told of what the API server has taken.
func TestOutside(t *testing.T) {
	expect.Answers(t, func(in map[string]any) bool { return outside(&unstructured.Unstructured{Object: in}) }, map[string]expect.Row[map[string]any, bool]{
		"no queue":                        {In: map[string]any{}, Want: true},
		"no queue, and Kueue manages it":  {In: map[string]any{"spec": map[string]any{"suspend": true}}},
		"a queue, asked for or a default": {In: map[string]any{"metadata": map[string]any{"labels": map[string]any{kit.QueueLabel: "gpus"}}}},
	})
}

func TestWhatTheAPIServerRefuses(t *testing.T) {
	kind := schema.GroupResource{Group: "trainer.kubeflow.org", Resource: "trainjobs"}
	expect.Answers(t, func(in error) int {
		c := &command{request: request{name: "a", namespace: "ns", runtime: "torch"}, streams: genericiooptions.NewTestIOStreamsDiscard()}
		_, err := c.create(t.Context(), kit.Writes(newClient(true), func(kit.Write) error { return in }))
		return exit.Code(err)
	}, map[string]expect.Row[error, int]{
		"a field":               {In: apierrors.NewInvalid(trainjob.GVK.GroupKind(), "a", nil), Want: exit.Findings},
		"a quota of objects":    {In: apierrors.NewForbidden(kind, "a", errors.New("exceeded quota: jobs")), Want: exit.Findings},
		"a policy":              {In: apierrors.NewForbidden(kind, "a", errors.New("ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no")), Want: exit.Findings},
		"a webhook":             {In: errors.New(`admission webhook "w" denied the request: no`), Want: exit.Findings},
		"who lacks a right":     {In: apierrors.NewForbidden(kind, "a", errors.New(`User "u" cannot create resource "trainjobs" in API group "trainer.kubeflow.org" in the namespace "ns"`)), Want: exit.Failed},
		"because it is so busy": {In: apierrors.NewTooManyRequests("later", 1), Want: exit.Failed},
	})
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
		held, drained, inactive, stopped, kit.Priority("high", 0),
		&kueue.Topology{ObjectMeta: metav1.ObjectMeta{Name: "racks"}, Spec: kueue.TopologySpec{Levels: []kueue.TopologyLevel{{NodeLabel: "rack"}, {NodeLabel: "host"}}}}).
		WithInterceptorFuncs(kit.RefusingGet(func(client.Object, client.ObjectKey) error {
			if forbidden {
				return kit.Forbidden("objects")
			}
			return nil
		})).Build()
}
