// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"bytes"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/utils/ptr"
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

func decoded(t *testing.T) []admissionregistrationv1.ValidatingAdmissionPolicy {
	t.Helper()
	var all []admissionregistrationv1.ValidatingAdmissionPolicy
	for _, name := range Names() {
		content, err := Files.ReadFile(strings.TrimPrefix(name, "kueue-trainer-") + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		var policy admissionregistrationv1.ValidatingAdmissionPolicy
		// The first document; the binding follows.
		if err := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096).Decode(&policy); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all = append(all, policy)
	}
	return all
}
