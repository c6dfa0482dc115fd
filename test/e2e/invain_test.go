// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"strings"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// ourEntry is where our entry of a TrainJob without others stands for a JSON patch.
const ourEntry = "/spec/runtimePatches/0/trainingRuntimeSpec/template/spec/replicatedJobs/0/template/spec/template/spec"

// Policies of an admin, for what this manager writes: they stand for webhooks and
// controllers of others that know nothing of our entry.
var _ = Describe("Where somebody's admission undoes what the manager writes", Label("control"), Serial, func() {
	BeforeEach(func() {
		externalOnly("the specs of this group read the audit log")
		localOnly("the specs of this group read the audit log")
	})

	DescribeTable("the write is repeated less and less often, and the user is told", since(world.Trainer22), Label("invariant", "nothing-waits-in-silence"),
		func(ctx context.Context, expression, note string) {
			w, _ := newRunning(ctx, "runs")
			// The API server takes note of it within a second. What waits is not written.
			w.interfere(ctx, expression)
			w.MakeGated(ctx, w.Job("undone").GPUs("8"), 1)
			w.Finish(ctx, "runs", "succeeded")
			w.EventuallyTold(ctx, "undone", "WriteInVain", note)

			log := openAuditLog()
			Consistently(ctx, func() int { return len(trainJobWrites(log)) }).
				WithTimeout(10*time.Second).WithPolling(time.Second).Should(BeNumerically("<=", 12), "writes of TrainJobs in ten seconds")
		},
		Entry("when it is stripped", long, `[JSONPatch{op: "remove", path: "/spec/runtimePatches"}]`, "spec.runtimePatches is not stored as kueue-trainer writes it", SpecTimeout(specTimeout)),
		Entry("when it is changed", fmt.Sprintf(`[JSONPatch{op: "add", path: %q, value: {"example.com/policy": "on"}}]`, ourEntry+"/nodeSelector"), "spec.runtimePatches is not stored as kueue-trainer writes it", SpecTimeout(specTimeout)),
		Entry("when it is refused", "", "is refused again and again", SpecTimeout(specTimeout)),
	)
})

// interfere has an admission policy patch the spec of TrainJobs as the manager writes them
// in the spec's namespace or, without an expression, refuse them.
func (w *site) interfere(ctx context.Context, expression string) {
	GinkgoHelper()
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

// trainJobWrites returns what the manager wrote of TrainJobs.
func trainJobWrites(log *auditLog) []string {
	GinkgoHelper()
	var out []string
	for _, write := range log.writes("kueue-trainer") {
		if strings.HasPrefix(write, "patch trainjobs ") {
			out = append(out, write)
		}
	}
	return out
}
