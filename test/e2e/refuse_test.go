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
