// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"bytes"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
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
				failure := ptr.Deref(policy.Spec.FailurePolicy, admissionregistrationv1.Fail)
				expect.That(t, group == served || failure == admissionregistrationv1.Ignore,
					"%s has failurePolicy %s: without %s every request for %s.%s fails", policy.Name, failure, params.Kind, rule.Resources, group)
			}
		}
	}
	expect.That(t, withParameters > 0, "No policy has parameters")
}

// A resource by a name that the API server does not have is not guarded: specs try each.
func TestSpecsAskForEveryResource(t *testing.T) {
	table := string(expect.Must(os.ReadFile("../../test/e2e/policies_table_test.go"))(t))
	asked := sets.New[string]()
	for _, call := range regexp.MustCompile(`(?:SubResource\("(\w+)"\)\.\w+\(ctx, |\(|ctx, )&\w+\.(\w+)\{`).FindAllStringSubmatch(table, -1) {
		plural, _ := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Kind: call[2]})
		asked.Insert(strings.TrimSuffix(plural.Resource+"/"+call[1], "/"))
	}
	for _, policy := range decoded(t) {
		for _, rule := range policy.Spec.MatchConstraints.ResourceRules {
			for _, resource := range rule.Resources {
				expect.That(t, asked.Has(resource), "No attempt is about %s, which %s guards", resource, policy.Name)
			}
		}
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
