// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/kueue-trainer/kueue-trainer/config/policies"
)

// unenforcedPolicies finds rules of kueue-trainer that the API server does not know, or does
// not enforce. People may have switched them off on purpose.
func unenforcedPolicies(f *Facts) []Finding {
	var findings []Finding
	for _, name := range policies.Names() {
		problem := f.policyProblem(name)
		if problem == "" {
			continue
		}
		findings = append(findings, Finding{
			Severity: Warning, Reason: "PolicyNotEnforced", Object: object("ValidatingAdmissionPolicy", "", name),
			Problem:  problem,
			Effect:   "People with edit rights in a namespace can run pods without quota; docs/what-holds.md#policies says how.",
			Advice:   "Unless it was switched off on purpose:",
			Commands: []string{f.apply("policies", "--set policies.enabled=true")},
		})
	}
	return findings
}

// policyProblem says why the API server does not enforce a policy; empty: it does.
func (f *Facts) policyProblem(name string) string {
	if !slices.ContainsFunc(f.Policies, func(p admissionregistrationv1.ValidatingAdmissionPolicy) bool { return p.Name == name }) {
		return "The policy is not installed."
	}
	if !slices.ContainsFunc(f.PolicyBindings, func(b admissionregistrationv1.ValidatingAdmissionPolicyBinding) bool {
		return b.Spec.PolicyName == name && slices.Contains(b.Spec.ValidationActions, admissionregistrationv1.Deny)
	}) {
		return "No binding of the policy denies what it refuses."
	}
	return ""
}
