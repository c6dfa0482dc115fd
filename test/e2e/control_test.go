// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/pkg/webhookconfig"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// These specs stop processes, which only a local control plane lets them do.
var _ = Describe("Without the manager", Label("control"), Serial, func() {
	It("no pod of a waiting TrainJob is bound, whatever the user does, and later it is admitted as ever", core, Label("invariant", "no-quota-no-pod"), func(ctx context.Context) {
		w, _ := newRunning(ctx, "running")
		w.MakeGated(ctx, w.Job("waiting").GPUs("8").Tolerate(gpuToleration), 1)
		w.MakeGated(ctx, w.Job("held").Queue(trainjob.HeldQueue("queue")).GPUs("8"), 0)

		stopComponent(ctx, cluster.Manager())
		Expect(w.TryEdit(ctx, "waiting", resume)).NotTo(Succeed(), "the webhook is away, so nobody may change a TrainJob")
		w.removeWebhooks(ctx)
		w.Edit(ctx, "waiting", resume)
		Eventually(ctx, func() []corev1.Pod { return w.Pods(ctx, "waiting") }).Should(HaveLen(1), "the pod is made")
		w.ConsistentlyUnbound(ctx, "waiting")

		repair(ctx)
		w.EventuallyAtTheGate(ctx, "waiting")
		w.EventuallyPods(ctx, "waiting", 0)
		w.Succeed(ctx, "running")
		w.EventuallyRuns(ctx, "waiting", 1, onH100)
		w.Succeed(ctx, "waiting")
		w.ConsistentlyIdle(ctx, "held")
	}, SpecTimeout(specTimeout))

	It("a job fails, and keeps its quota until Trainer, which makes its JobSet again, knows that it is suspended", core, Label("invariant", "no-quota-no-pod"), func(ctx context.Context) {
		w, _ := newRunningOf(ctx, "first", kit.OfOneTry)
		w.MakeGated(ctx, w.Job("next").GPUs("8"), 0)

		start := stopComponent(ctx, cluster.Manager())
		w.Finish(ctx, "first", "failed")
		w.eventuallyTrainJob(ctx, "first", trainer.TrainJobFailed)
		made, letThrough := w.holdJobSets(ctx, admissionregistrationv1.Create, func(request *admissionv1.AdmissionRequest) bool {
			return request.Name == "first"
		})
		w.deleteJobSet(ctx, "first")
		Eventually(ctx, made.Load).Should(BeNumerically(">", 0), "Trainer makes the JobSet by what it saw before")
		// The API server gives the webhook up after 30 s, and Trainer then forgets that the job has failed.
		start(ctx)
		Eventually(ctx, func() any { return w.TrainJob(ctx, "first").Spec.Suspend }).WithPolling(20 * time.Millisecond).Should(HaveValue(BeTrue()))
		letThrough()

		// What it asks for meanwhile is compared with its quota by the spec's ledger.
		w.eventuallyFollows(ctx, "next")
		w.EventuallyPods(ctx, "first", 0)
		w.EventuallyAtTheGate(ctx, "first")
	}, SpecTimeout(specTimeout))

	It("TrainJobs without a queue are nobody's concern, and one with a queue is refused with what it needs", core, func(ctx context.Context) {
		w := newPools(ctx, "8", "0")
		w.eventuallyInScope(ctx, webhookconfig.Queued)
		stopComponent(ctx, cluster.Manager())

		plain := w.Job("plain").Obj()
		delete(plain.Labels, kit.QueueLabel)
		w.Make(ctx, plain)
		w.EventuallyRuns(ctx, "plain", 1, nil)
		w.Edit(ctx, "plain", func(t *trainer.TrainJob) { t.Labels = map[string]string{"app": "plain"} })
		Expect(w.Delete(ctx, plain)).To(Succeed())

		Expect(w.Create(ctx, w.Job("queued").GPUs("8").Obj())).To(MatchError(ContainSubstring("queued-trainjobs-need-kueue-trainer-running")))
	}, SpecTimeout(specTimeout))

	It("running TrainJobs run on, and nothing is written when it is back", core, long, Label("invariant", "not-ours-to-stop"), func(ctx context.Context) {
		w, pods := newRunning(ctx, "runs")
		// The last words on the start, Trainer's and ours.
		w.EventuallyIs(ctx, &trainer.TrainJob{}, "runs", HaveField("Status.JobsStatus", ContainElement(HaveField("Ready", HaveValue(BeEquivalentTo(1))))))
		w.eventuallyReady(ctx, "runs", kueue.WorkloadStarted)
		before, wl := w.TrainJob(ctx, "runs"), w.Workload(ctx, "runs")
		stopComponent(ctx, cluster.Manager())
		repair(ctx)
		w.ConsistentlyKeeps(ctx, "runs", pods, wl)
		Expect(w.TrainJob(ctx, "runs").ResourceVersion).To(Equal(before.ResourceVersion))
		Expect(w.Workload(ctx, "runs").ResourceVersion).To(Equal(wl.ResourceVersion))
	}, SpecTimeout(specTimeout))

	It("a TrainJob made while webhook and manager were away is suspended, gated and admitted when they are back", core, long, Label("invariant", "no-quota-no-pod"), func(ctx context.Context) {
		w := newPools(ctx, "8", "0")
		stopComponent(ctx, cluster.Manager())
		w.removeWebhooks(ctx)
		suspended := w.Job("suspended").GPUs("8").Obj()
		suspended.Spec.Suspend = new(true)
		// Without the webhook nothing tolerates GPU nodes, so this one asks for none.
		former := w.MakeRunning(ctx, w.Job("started"), 1, nil, suspended)

		repair(ctx)
		w.EventuallyRuns(ctx, "suspended", 1, onH100)
		w.EventuallyCondition(ctx, "started", kueue.WorkloadAdmitted)
		Expect(world.UIDs(w.EventuallyRuns(ctx, "started", 1, nil))).NotTo(Equal(world.UIDs(former)), "it was stopped and admitted")
	}, SpecTimeout(specTimeout))
})

var _ = It("On a local control plane a preemption writes no error into the manager's log", Label("control"), Serial, core, Label("invariant", "quiet"), func(ctx context.Context) {
	w := newPools(ctx, "8", "8")
	w.MakeRunning(ctx, w.Job("patient").GPUs("8"), 1, onH100, kit.Priority(w.Name("urgent"), 1000))
	before := w.errorLines()
	w.MakeRunning(ctx, w.Job("urgent").Priority(w.Name("urgent")).GPUs("8"), 1, onH100)
	w.EventuallyRuns(ctx, "patient", 1, onA100)
	Expect(w.errorLines()).To(Equal(before))
}, SpecTimeout(specTimeout))

func resume(t *trainer.TrainJob) { t.Spec.Suspend = new(false) }

// removeWebhooks deletes the manager's webhook configurations; they are back after the spec, or after Repair.
func (w *site) removeWebhooks(ctx context.Context) {
	for _, obj := range []client.Object{
		get(ctx, w, &admissionregistrationv1.MutatingWebhookConfiguration{}, cluster.Manager()+"-mutating-webhook-configuration"),
		get(ctx, w, &admissionregistrationv1.ValidatingWebhookConfiguration{}, cluster.Manager()+"-validating-webhook-configuration"),
	} {
		Expect(w.Delete(ctx, obj)).To(Succeed())
		obj.SetResourceVersion("")
		DeferCleanup(func(ctx context.Context) { Expect(client.IgnoreAlreadyExists(w.Create(ctx, obj))).To(Succeed()) })
	}
	// The API server takes note of it a moment later. The webhooks are for TrainJobs with a queue.
	Eventually(ctx, func() error { return w.Create(ctx, w.Job("probe").Obj(), client.DryRunAll) }).Should(Succeed())
}

// ourEntry is where our entry of a TrainJob without others stands for a JSON patch.
const ourEntry = "/spec/runtimePatches/0/trainingRuntimeSpec/template/spec/replicatedJobs/0/template/spec/template/spec"

// Policies of an admin stand for webhooks and controllers of others that know nothing of our entry.
var _ = DescribeTable("Where somebody's admission undoes what the manager writes the write is repeated less and less often, and the user is told", Label("control", "external"), Serial, since(world.Trainer22), Label("invariant", "nothing-waits-in-silence"),
	func(ctx context.Context, expression, note string) {
		w, _ := newRunning(ctx, "runs")
		// The API server takes note of it within a second. What waits is not written.
		w.interfere(ctx, expression)
		w.MakeGated(ctx, w.Job("undone").GPUs("8"), 1)
		w.Finish(ctx, "runs", "succeeded")
		w.EventuallyTold(ctx, "undone", "WriteInVain", note)

		writes := managerWrites()
		Consistently(ctx, func() int { return strings.Count("\n"+strings.Join(writes(), "\n"), "\npatch trainjobs ") }).
			WithTimeout(5*time.Second).WithPolling(time.Second).Should(BeNumerically("<=", 8), "writes of TrainJobs in five seconds")
	},
	Entry("when it is stripped", long, `[JSONPatch{op: "remove", path: "/spec/runtimePatches"}]`, "spec.runtimePatches is not stored as kueue-trainer writes it", SpecTimeout(specTimeout)),
	Entry("when it is changed", fmt.Sprintf(`[JSONPatch{op: "add", path: %q, value: {"example.com/policy": "on"}}]`, ourEntry+"/nodeSelector"), "spec.runtimePatches is not stored as kueue-trainer writes it", SpecTimeout(specTimeout)),
	Entry("when it is refused", "", "is refused again and again", SpecTimeout(specTimeout)),
)

// interfere has a policy patch what the manager writes into the spec's TrainJobs or, without an expression, refuse it.
func (w *site) interfere(ctx context.Context, expression string) {
	refusal := w.policy("interferes", []string{trainer.GroupVersion.Group}, []string{"trainjobs"}, "false")
	refusal.Spec.MatchConditions = []admissionregistrationv1.MatchCondition{{
		Name: "ours", Expression: `request.userInfo.username == "kueue-trainer" && has(object.spec.runtimePatches)`,
	}}
	if expression == "" {
		w.Make(ctx, refusal, bound(refusal))
		return
	}
	w.Make(ctx, &admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: refusal.ObjectMeta, Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
		MatchConstraints: refusal.Spec.MatchConstraints, MatchConditions: refusal.Spec.MatchConditions,
		ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
		Mutations: []admissionregistrationv1.Mutation{{
			PatchType: admissionregistrationv1.PatchTypeJSONPatch, JSONPatch: &admissionregistrationv1.JSONPatch{Expression: expression}}},
	}}, &admissionregistrationv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: refusal.ObjectMeta, Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: refusal.Name}})
}

var _ = It("A job that is evicted while Trainer resumes it keeps its quota until that has come to nothing", Label("control"), Serial, Label("invariant", "no-quota-no-pod"), func(ctx context.Context) {
	w := newPools(ctx, "0", "0")
	w.MakeGated(ctx, w.Job("late").GPUs("8"), 0)
	w.EventuallyPending(ctx, "late")
	resumed, letThrough := w.holdJobSets(ctx, admissionregistrationv1.Update, func(request *admissionv1.AdmissionRequest) bool {
		return suspended(request.OldObject.Raw) && !suspended(request.Object.Raw)
	})

	w.SetQuota(ctx, w.Name("gpus"), "8")
	Eventually(ctx, func() any { return w.TrainJob(ctx, "late").Spec.Suspend }).WithPolling(20 * time.Millisecond).Should(HaveValue(BeFalse()))
	w.SetStopPolicy(ctx, kit.ClusterQueue(w.Name("gpus")), kueue.HoldAndDrain)
	w.eventuallyEvicted(ctx, "late", kueue.WorkloadEvictedByClusterQueueStopped)
	Eventually(ctx, resumed.Load).Should(BeNumerically(">", 0), "Trainer resumes the JobSet")
	w.EventuallyAtTheGate(ctx, "late")
	letThrough()

	// What it asks for meanwhile is compared with its quota by the spec's ledger.
	Eventually(ctx, func(g Gomega) {
		g.Expect(w.usedGPUs(ctx)).To(BeZero())
		g.Expect(w.Pods(ctx, "late")).To(BeEmpty())
		g.Expect(get(ctx, w, &jobsetapi.JobSet{}, "late").Spec.Suspend).To(HaveValue(BeTrue()))
	}).Should(Succeed())
}, SpecTimeout(specTimeout))

// holdJobSets has a webhook hold requests for JobSets of the spec, counts them, and returns how to let them through.
func (w *site) holdJobSets(ctx context.Context, operation admissionregistrationv1.OperationType, held func(*admissionv1.AdmissionRequest) bool) (*atomic.Int32, func()) {
	var count atomic.Int32
	var known atomic.Bool
	through := make(chan struct{})
	letThrough := sync.OnceFunc(func() { close(through) })
	answer := func(_ context.Context, request admission.Request) admission.Response {
		switch {
		case request.Name == probed:
			known.Store(true)
		case request.Operation == admissionv1.Operation(operation) && held(&request.AdmissionRequest):
			count.Add(1)
			<-through
		}
		return admission.Allowed("")
	}
	server := httptest.NewUnstartedServer(&admission.Webhook{Handler: admission.HandlerFunc(answer)})
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	DeferCleanup(server.Close)
	DeferCleanup(letThrough)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	w.Make(ctx, &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: w.Name("slow")},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "slow.example.com", SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
			TimeoutSeconds:    ptr.To[int32](30),
			ClientConfig:      admissionregistrationv1.WebhookClientConfig{URL: &server.URL, CABundle: authority},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": w.Namespace}},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{operation, admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{jobsetapi.GroupVersion.Group}, APIVersions: []string{"*"}, Resources: []string{"jobsets"}},
			}},
		}},
	})
	// The API server takes note of it a moment later.
	Eventually(ctx, func() bool {
		probe := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: probed}}
		Expect(w.Create(ctx, probe, client.DryRunAll)).To(Succeed())
		return known.Load()
	}).Should(BeTrue())
	return &count, letThrough
}

const probed = "probe"

func suspended(raw []byte) bool {
	var js jobsetapi.JobSet
	return json.Unmarshal(raw, &js) == nil && ptr.Deref(js.Spec.Suspend, false)
}
