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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

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
