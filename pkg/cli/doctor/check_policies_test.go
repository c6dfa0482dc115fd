// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"slices"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/kueue-trainer/kueue-trainer/config/policies"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// withPolicies installs all of them.
func withPolicies(f *Facts) {
	for _, name := range policies.Names() {
		policy, binding := policyAndBinding(name)
		f.Policies, f.PolicyBindings = append(f.Policies, policy), append(f.PolicyBindings, binding)
	}
}

func policyAndBinding(name string) (admissionregistrationv1.ValidatingAdmissionPolicy, admissionregistrationv1.ValidatingAdmissionPolicyBinding) {
	meta := metav1.ObjectMeta{Name: name}
	return admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: meta},
		admissionregistrationv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: meta,
			Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName: name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
			},
		}
}

func TestUnenforcedPolicies(t *testing.T) {
	isTrainJobs := func(name string) bool { return name == "kueue-trainer-trainjobs" }
	cases := map[string]struct {
		change func(*Facts)
		want   []string
	}{
		"all are there": {},
		"one is not installed": {
			change: func(f *Facts) {
				f.Policies = slices.DeleteFunc(f.Policies, func(p admissionregistrationv1.ValidatingAdmissionPolicy) bool { return isTrainJobs(p.Name) })
			},
			want: []string{"ValidatingAdmissionPolicy kueue-trainer-trainjobs: The policy is not installed."},
		},
		"one has no binding": {
			change: func(f *Facts) {
				f.PolicyBindings = slices.DeleteFunc(f.PolicyBindings, func(b admissionregistrationv1.ValidatingAdmissionPolicyBinding) bool {
					return isTrainJobs(b.Name)
				})
			},
			want: []string{"ValidatingAdmissionPolicy kueue-trainer-trainjobs: No binding of the policy denies what it refuses."},
		},
		"one only warns": {
			change: func(f *Facts) {
				for i := range f.PolicyBindings {
					if isTrainJobs(f.PolicyBindings[i].Name) {
						f.PolicyBindings[i].Spec.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Warn}
					}
				}
			},
			want: []string{"ValidatingAdmissionPolicy kueue-trainer-trainjobs: No binding of the policy denies what it refuses."},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := with(t, tc.change)
			var got []string
			for _, finding := range newReport(f).Findings {
				if finding.Reason == "PolicyNotEnforced" && finding.Severity == Warning {
					got = append(got, finding.Object+": "+finding.Problem)
				}
			}
			expect.Same(t, "Unexpected policies", tc.want, got)
		})
	}
}

func TestPoliciesAreNamedAfterTheirFiles(t *testing.T) {
	names := policies.Names()
	expect.Need(t, len(names) != 0, "no policies")
	for _, name := range names {
		content := expect.Must(policies.Files.ReadFile(name[len("kueue-trainer-"):] + ".yaml"))(t)
		decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
		var policy admissionregistrationv1.ValidatingAdmissionPolicy
		var binding admissionregistrationv1.ValidatingAdmissionPolicyBinding
		expect.NoError(t, decoder.Decode(&policy))
		expect.NoError(t, decoder.Decode(&binding))
		expect.Same(t, "Unexpected names", []string{name, name, name}, []string{policy.Name, binding.Name, binding.Spec.PolicyName})
	}
}
