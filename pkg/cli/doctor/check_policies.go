// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/kueue-trainer/kueue-trainer/config/policies"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
)

// unenforcedPolicies finds rules of kueue-trainer that the API server does not know, or does
// not enforce. People may have switched them off on purpose.
func unenforcedPolicies(f *Facts, found func(hit)) {
	for _, name := range policies.Names() {
		if problem := f.policyProblem(name); problem != "" {
			found(about("ValidatingAdmissionPolicy", "", name, "problem", problem, "enforce", f.apply("policies", "--set policies.enabled=true")))
		}
	}
}

// policyProblem says why the API server does not enforce a policy; empty: it does.
func (f *Facts) policyProblem(name string) string {
	if inventory.Find(f.Policies, "", name) == nil {
		return "The policy is not installed."
	}
	if !slices.ContainsFunc(f.PolicyBindings, func(b admissionregistrationv1.ValidatingAdmissionPolicyBinding) bool {
		return b.Spec.PolicyName == name && slices.Contains(b.Spec.ValidationActions, admissionregistrationv1.Deny)
	}) {
		return "No binding of the policy denies what it refuses."
	}
	return ""
}
