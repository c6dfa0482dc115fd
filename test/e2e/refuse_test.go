// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
)

// refuseManager has the API server refuse what the manager writes into TrainJobs of the
// spec's namespace, until allow. What users write is not touched.
func (w *site) refuseManager(ctx context.Context) (allow func(context.Context)) {
	// Kueue's name is in that of both managers, and Kueue itself writes no TrainJob.
	return w.enforce(ctx, w.policy("no-manager", []string{trainer.GroupVersion.Group}, []string{"trainjobs"},
		"!request.userInfo.username.contains('kueue')"), w.probeAs(ctx, "kueue-probe"))
}

// policy is one of the spec's namespace for objects that are made or changed, of which an expression
// has to be true.
func (w *site) policy(name string, groups, resources []string, expression string) *admissionregistrationv1.ValidatingAdmissionPolicy {
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: w.Name(name)}}
	policy.Spec.FailurePolicy = ptr.To(admissionregistrationv1.Fail)
	policy.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: w.Namespace}},
		ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
			Rule:       admissionregistrationv1.Rule{APIGroups: groups, APIVersions: []string{"*"}, Resources: resources},
		}}},
	}
	policy.Spec.Validations = []admissionregistrationv1.Validation{{Expression: expression, Message: "refused by the spec"}}
	return policy
}

// bound has the API server deny what a policy refuses.
func bound(policy *admissionregistrationv1.ValidatingAdmissionPolicy) *admissionregistrationv1.ValidatingAdmissionPolicyBinding {
	return &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: policy.Name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: policy.Name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}
}

// enforce has the API server deny by a policy, which asked runs into, until allow or the spec's
// end.
func (w *site) enforce(ctx context.Context, policy *admissionregistrationv1.ValidatingAdmissionPolicy, asked func(context.Context) error) (allow func(context.Context)) {
	binding := bound(policy)
	allow = func(ctx context.Context) {
		Expect(client.IgnoreNotFound(w.Delete(ctx, binding))).To(Succeed())
		Expect(client.IgnoreNotFound(w.Delete(ctx, policy))).To(Succeed())
		Eventually(ctx, asked).Should(Succeed())
	}
	DeferCleanup(allow)
	Expect(w.Create(ctx, policy)).To(Succeed())
	Expect(w.Create(ctx, binding)).To(Succeed())
	Eventually(ctx, asked).ShouldNot(Succeed())
	return allow
}

// probeAs returns a dry run of a write to a TrainJob of nobody's queue, by a user of this name.
func (w *site) probeAs(ctx context.Context, user string) func(context.Context) error {
	as := must(cluster.Impersonating(user, "system:masters"))
	probe := kit.TrainJob(w.Namespace, "probe").Obj()
	probe.Spec.Suspend = ptr.To(true)
	Expect(w.Create(ctx, probe)).To(Succeed())
	return func(ctx context.Context) error {
		return as.Patch(ctx, probe.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"example.com/probe":"asked"}}}`)), client.DryRunAll)
	}
}

var _ = Describe("What cannot run", core, func() {
	DescribeTable("gets no quota, because it is refused when it is created",
		func(ctx context.Context, change func(*kit.TrainJobBuilder), want ...string) {
			w := newPools(ctx, "16", "0")
			w.expectRefused(ctx, change, want...)
		},
		Entry("for a name that leaves JobSet no room for those of pods", func(j *kit.TrainJobBuilder) { j.Name = strings.Repeat("a", 60) },
			"metadata.name", "at most 48 characters"),
		Entry("for a part of a GPU", func(j *kit.TrainJobBuilder) { j.GPUs("0.5") },
			"spec.trainer.resourcesPerNode.limits[nvidia.com/gpu]", "whole number"),
		Entry("for fewer nodes than none", func(j *kit.TrainJobBuilder) { j.Nodes(-1) }, "spec.trainer.numNodes", "at least 1"),
		Entry("for the manager's gate in a patch", func(j *kit.TrainJobBuilder) {
			j.PodPatch("example.com/user", "node", trainer.PodTemplatePatch{Spec: &trainer.PodSpecPatch{
				SchedulingGates: []corev1.PodSchedulingGate{{Name: patch.AdmissionGate}}}})
		}, "spec.runtimePatches[", "schedulingGates[0].name", "leave it out"),
		Entry("for a gate of Kueue's in a patch", func(j *kit.TrainJobBuilder) {
			j.PodPatch("example.com/user", "node", trainer.PodTemplatePatch{Spec: &trainer.PodSpecPatch{
				SchedulingGates: []corev1.PodSchedulingGate{{Name: "kueue.x-k8s.io/topology"}}}})
		}, "spec.runtimePatches[", "schedulingGates[0].name"),
		Entry("for MultiKueue in a queue that leads to no other cluster", func(j *kit.TrainJobBuilder) {
			j.Spec.ManagedBy = ptr.To(kueue.MultiKueueControllerName)
		}, "spec.managedBy", "MultiKueue"),
		Entry("for more variables than the Workload should hold", func(j *kit.TrainJobBuilder) {
			j.Spec.Trainer.Env = []corev1.EnvVar{{Name: "DATA", Value: strings.Repeat("x", 300_000)}}
		}, "spec", "ConfigMap"),
	)

	It("is refused for its runtime, which the message names with GPUs that are requested without a limit", func(ctx context.Context) {
		w := newPools(ctx, "16", "0")
		runtime := w.CopyRuntime(ctx, "torch-distributed", func(spec *trainer.TrainingRuntimeSpec) {
			kit.RuntimePod(spec).Containers[0].Resources.Requests = kit.Amounts("nvidia.com/gpu", "1")
		})
		w.Make(ctx, runtime)
		Expect(w.Create(ctx, w.Job("bad").Runtime(runtime.Name).Obj())).To(MatchError(SatisfyAll(ContainSubstring("spec.runtimeRef"),
			ContainSubstring(runtime.Name), ContainSubstring("container node"), ContainSubstring("requests[nvidia.com/gpu]"))))
	}, SpecTimeout(specTimeout))

	It("does not come into a queue that leads to other clusters, where it was made for this one", func(ctx context.Context) {
		externalOnly("the in-tree integration lets it be rejected")
		w := newPools(ctx, "16", "0")
		check := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: w.Name("elsewhere")}}
		check.Spec.ControllerName = kueue.MultiKueueControllerName
		far := kit.ClusterQueue(w.Name("far"), kit.Quota{Flavor: w.Name("h100"), GPUs: "8"})
		far.Spec.AdmissionChecksStrategy = kit.Checks(check.Name)
		w.Make(ctx, check, far, kit.LocalQueue(w.Namespace, "far", far.Name))
		w.MakePending(ctx, w.Job("waits").Nodes(4).GPUs("8"))
		job := w.TrainJob(ctx, "waits")
		Expect(w.Patch(ctx, job, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"kueue.x-k8s.io/queue-name":"far"}}}`)))).
			To(MatchError(SatisfyAll(ContainSubstring("spec.managedBy"), ContainSubstring("create the TrainJob again"))))
	}, SpecTimeout(specTimeout))
})

// expectRefused has the API server refuse a TrainJob as it was changed, with words that tell why.
func (w *site) expectRefused(ctx context.Context, change func(*kit.TrainJobBuilder), want ...string) {
	job := w.Job("bad").Nodes(2)
	change(job)
	err := w.Create(ctx, job.Obj())
	Expect(err).To(HaveOccurred())
	for _, part := range want {
		Expect(err.Error()).To(ContainSubstring(strings.ReplaceAll(part, "spec.runtimePatches", "spec."+fieldOf[trainerOf(ctx)])))
	}
}
