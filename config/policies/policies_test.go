// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/utils/ptr"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// The API server cannot evaluate a policy whose parameters' kind it does not serve, and with Fail refuses all that it
// matches: also where Kueue was never there, or is gone.
func TestNothingOfOthersIsRefusedWithoutTheKindOfTheParameters(t *testing.T) {
	withParameters := 0
	for _, policy := range decoded(t) {
		params := policy.Spec.ParamKind
		if params == nil {
			continue
		}
		withParameters++
		served := schema.FromAPIVersionAndKind(params.APIVersion, params.Kind).Group
		for _, rule := range policy.Spec.MatchConstraints.ResourceRules {
			for _, group := range rule.APIGroups {
				if failure := ptr.Deref(policy.Spec.FailurePolicy, admissionregistrationv1.Fail); group != served && failure != admissionregistrationv1.Ignore {
					t.Errorf("%s has failurePolicy %s: without %s every request for %s.%s fails", policy.Name, failure, params.Kind, rule.Resources, group)
				}
			}
		}
	}
	if withParameters == 0 {
		t.Error("No policy has parameters")
	}
}

// decoded are the policies of the files, which are named after them as their bindings are.
func decoded(t *testing.T) []admissionregistrationv1.ValidatingAdmissionPolicy {
	t.Helper()
	var all []admissionregistrationv1.ValidatingAdmissionPolicy
	for _, name := range Names() {
		content := expect.Must(Files.ReadFile(strings.TrimPrefix(name, "kueue-trainer-") + ".yaml"))(t)
		decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
		var policy admissionregistrationv1.ValidatingAdmissionPolicy
		var binding admissionregistrationv1.ValidatingAdmissionPolicyBinding
		expect.NoError(t, errors.Join(decoder.Decode(&policy), decoder.Decode(&binding)))
		expect.Same(t, "Unexpected names", []string{name, name, name}, []string{policy.Name, binding.Name, binding.Spec.PolicyName})
		all = append(all, policy)
	}
	return all
}
