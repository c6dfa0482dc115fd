// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

const maxExecLabel = "kueue.x-k8s.io/max-exec-time-seconds"

// asManager returns a client of whom the webhooks take for the manager itself, and let pass.
func asManager(ctx context.Context) client.Client {
	binding := world.Found(ctx, Default, cluster.Client, &rbacv1.ClusterRoleBinding{}, client.ObjectKey{Name: "kueue-trainer-manager-rolebinding"})
	subject := binding.Subjects[0]
	user := subject.Name
	if subject.Kind == rbacv1.ServiceAccountKind {
		user = "system:serviceaccount:" + subject.Namespace + ":" + subject.Name
	}
	return must(cluster.Impersonating(user))
}

var _ = Describe("A label that decides about a TrainJob", core, func() {
	limited := HaveField("Spec.MaximumExecutionTimeSeconds", HaveValue(Equal(int32(900))))
	limit := func(t *trainer.TrainJob) { t.Labels[maxExecLabel] = "900" }
	eventuallyLimits := func(ctx context.Context, w *site) {
		Eventually(ctx, func() error { return w.TryEdit(ctx, "slow", limit) }).Should(Succeed())
	}

	It("gives a priority to a running one that is stopped with it", func(ctx context.Context) {
		w, _ := newRunning(ctx, "rises")
		w.Make(ctx, kit.Priority(w.Name("high"), 1000))
		before := w.Workload(ctx, "rises")
		Expect(w.TryEdit(ctx, "rises", func(t *trainer.TrainJob) { t.Labels[kit.PriorityLabel] = w.Name("high") })).
			To(MatchError(ContainSubstring("set spec.suspend to true")))
		w.Edit(ctx, "rises", func(t *trainer.TrainJob) {
			t.Labels[kit.PriorityLabel] = w.Name("high")
			t.Spec.Suspend = new(true)
		})
		w.EventuallyWorkload(ctx, "rises", HaveField("UID", Not(Equal(before.UID))), HaveField("Spec.Priority", HaveValue(Equal(int32(1000)))))
		w.EventuallyRuns(ctx, "rises", 1, onH100)
	}, SpecTimeout(specTimeout))

	It("has one that runs start again when its time limit was changed past the webhook", func(ctx context.Context) {
		w, _ := newRunning(ctx, "limited")
		job := get(ctx, w, world.NewTrainJob(), "limited")
		Expect(asManager(ctx).Patch(ctx, job, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"`+maxExecLabel+`":"900"}}}`)))).To(Succeed())
		w.EventuallyWorkload(ctx, "limited", limited)
		w.EventuallyRuns(ctx, "limited", 1, onH100)
	}, SpecTimeout(specTimeout))

	It("lets nobody keep the pods of a stopped one without their quota by another time limit", func(ctx context.Context) {
		w, _ := newRunning(ctx, "slow", "4s")
		// The manager starts it again when its pods are gone, and then refuses the label.
		Eventually(ctx, func() error {
			if err := w.TryEdit(ctx, "slow", func(t *trainer.TrainJob) { t.Spec.Suspend = new(true) }); err != nil {
				return err
			}
			return w.TryEdit(ctx, "slow", limit)
		}).Should(Succeed())
		w.EventuallyWorkload(ctx, "slow", limited)
		w.EventuallyRuns(ctx, "slow", 1, onH100)
	}, SpecTimeout(specTimeout))

	It("takes no quota from the pods of one whose Workload was deleted by another time limit", func(ctx context.Context) {
		w, _ := newRunning(ctx, "slow", "4s")
		Expect(w.Delete(ctx, w.Workload(ctx, "slow"))).To(Succeed())
		eventuallyLimits(ctx, w)
		w.EventuallyWorkload(ctx, "slow", limited)
		w.EventuallyRuns(ctx, "slow", 1, onH100)
	}, SpecTimeout(specTimeout))

	It("leaves one deactivated whose time limit is changed while its pods end", func(ctx context.Context) {
		w, _ := newRunning(ctx, "slow", "4s")
		uid := w.Workload(ctx, "slow").UID
		w.Activate(ctx, "slow", false)
		eventuallyLimits(ctx, w)
		w.EventuallyWorkload(ctx, "slow", HaveField("UID", uid), HaveField("Spec.Active", HaveValue(BeFalse())), limited)
	}, SpecTimeout(specTimeout))

	It("can be tested in a JSON patch, as a start does", func(ctx context.Context) {
		w := newWorld(ctx)
		const all, one = "/metadata/labels", "/metadata/labels/example.com~1c"
		for what, tc := range map[string]struct {
			labels      map[string]string
			path, value string
			holds       bool
		}{
			"where all are missing": {path: all, value: "null", holds: true},
			"where there is one":    {labels: map[string]string{"a": "b"}, path: all, value: "null"},
			"where it is missing":   {labels: map[string]string{"a": "b"}, path: one, value: "null", holds: true},
			"where it is there":     {labels: map[string]string{"example.com/c": ""}, path: one, value: "null"},
			"where it is the same":  {labels: map[string]string{"example.com/c": "d"}, path: one, value: `"d"`, holds: true},
			"where it is another":   {labels: map[string]string{"example.com/c": "e"}, path: one, value: `"d"`},
			"where all went":        {path: one, value: `"d"`},
		} {
			job := kit.TrainJob(w.Namespace, "tested-"+rand.String(5)).Obj()
			job.Labels, job.Spec.Suspend = tc.labels, new(true)
			w.Make(ctx, job)
			ops := fmt.Sprintf(`[{"op":"test","path":%q,"value":%s},{"op":"add","path":"/spec/suspend","value":false}]`, tc.path, tc.value)
			err := w.Patch(ctx, get(ctx, w, world.NewTrainJob(), job.Name), client.RawPatch(types.JSONPatchType, []byte(ops)), client.DryRunAll)
			Expect(err == nil).To(Equal(tc.holds), "%s: %v", what, err)
			Expect(err == nil || apierrors.IsInvalid(err)).To(BeTrue(), "%s: %v", what, err)
		}
	}, SpecTimeout(specTimeout))
})

var _ = It("A running TrainJob that its user stops runs no pod beside those that end, also when its user resumes it", core, func(ctx context.Context) {
	w, before := newRunning(ctx, "toggled", "6s")
	for _, suspend := range []bool{true, false, true, false} {
		w.Edit(ctx, "toggled", func(t *trainer.TrainJob) { t.Spec.Suspend = &suspend })
	}
	Eventually(ctx, w.Pods).WithArguments(ctx, "toggled").Should(Or(BeEmpty(), ConsistOf(HaveField("UID", Not(Equal(before[0].UID))))))
	w.EventuallyRuns(ctx, "toggled", 1, onH100)
}, SpecTimeout(specTimeout))

var _ = Describe("A waiting TrainJob that cannot run any more", core, func() {
	It("gives its quota back where only MultiKueue may run it, in a queue that turns out to be without", since(world.Trainer23), func(ctx context.Context) {
		w := newPools(ctx, "8", "0")
		job := w.Job("far").Queue("later").GPUs("8")
		job.Spec.ManagedBy = new(kueue.MultiKueueControllerName)
		w.queues(ctx, job)
		w.Make(ctx, kit.LocalQueue(w.Namespace, "later", w.Name("gpus")))
		w.EventuallyTold(ctx, "far", "PodSetsUnknown", "spec.managedBy")
		w.EventuallyNoWorkload(ctx, "far")
		w.MakeRunning(ctx, w.Job("near").GPUs("8"), 1, onH100)
		Expect(w.Workload(ctx, "far")).To(BeNil())
		Expect(w.EventNotes(ctx, "TrainJob", "far", "PodSetsUnknown")).To(HaveLen(1))
	}, SpecTimeout(specTimeout))

	It("loses its Workload where its runtime gets the manager's gate, and queues when it is taken out", until(world.Trainer22), func(ctx context.Context) {
		w := newPools(ctx, "8", "0")
		runtime := w.CopyRuntime(ctx, "torch-distributed")
		w.MakeRunning(ctx, w.Job("first").GPUs("8"), 1, onH100, runtime)
		w.MakePending(ctx, w.Job("second").Runtime(runtime.Name).GPUs("8"))
		gates := func(gates ...corev1.PodSchedulingGate) kit.RuntimeChange {
			return func(spec *trainer.TrainingRuntimeSpec) { kit.RuntimePod(spec).SchedulingGates = gates }
		}
		w.EditRuntime(ctx, runtime.Name, gates(corev1.PodSchedulingGate{Name: patch.AdmissionGate}))
		w.Touch(ctx, "second")
		w.EventuallyTold(ctx, "second", "PodSetsUnknown", runtime.Name, patch.AdmissionGate)
		w.EventuallyNoWorkload(ctx, "second")

		w.EditRuntime(ctx, runtime.Name, gates())
		w.Touch(ctx, "second")
		w.EventuallyPending(ctx, "second")
	}, SpecTimeout(specTimeout))
})
