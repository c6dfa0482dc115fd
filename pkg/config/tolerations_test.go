// SPDX-License-Identifier: Apache-2.0

package config

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestValidateTolerationRules(t *testing.T) {
	exists := corev1.Toleration{Key: "amd.com/gpu", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
	tolerating := func(t corev1.Toleration) []TolerationRule {
		return []TolerationRule{{Resources: []string{"amd.com/gpu"}, Tolerations: []corev1.Toleration{t}}}
	}
	forResource := func(names ...string) []TolerationRule {
		return []TolerationRule{{Resources: names, Tolerations: []corev1.Toleration{exists}}}
	}
	cases := map[string]struct {
		rules []TolerationRule
		want  []string
	}{
		"no rules":                           {},
		"names and beginnings":               {rules: forResource("amd.com/gpu", "gpu.intel.com/*", "habana.ai/gau*")},
		"a value":                            {rules: tolerating(corev1.Toleration{Key: "sku", Value: "gpu"})},
		"seconds":                            {rules: tolerating(corev1.Toleration{Key: "sku", Operator: "Exists", Effect: "NoExecute", TolerationSeconds: ptr.To[int64](5)})},
		"an empty rule":                      {rules: []TolerationRule{{}}, want: []string{"tolerationRules[0].resources: FieldValueRequired", "tolerationRules[0].tolerations: FieldValueRequired"}},
		"everything":                         {rules: forResource("*"), want: []string{"tolerationRules[0].resources[0]: FieldValueInvalid"}},
		"a resource that every pod asks for": {rules: forResource("cpu"), want: []string{"tolerationRules[0].resources[0]: FieldValueInvalid"}},
		"a star in the middle":               {rules: forResource("amd.com/*gpu"), want: []string{"tolerationRules[0].resources[0]: FieldValueInvalid"}},
		"a name that is none":                {rules: forResource("amd.com/g p u"), want: []string{"tolerationRules[0].resources[0]: FieldValueInvalid"}},
		"no key":                             {rules: tolerating(corev1.Toleration{Operator: "Exists"}), want: []string{"tolerationRules[0].tolerations[0].key: FieldValueRequired"}},
		"a value that may be anything":       {rules: tolerating(corev1.Toleration{Key: "sku", Operator: "Exists", Value: "gpu"}), want: []string{"tolerationRules[0].tolerations[0].value: FieldValueInvalid"}},
		"a value that is none":               {rules: tolerating(corev1.Toleration{Key: "sku", Value: "g p u"}), want: []string{"tolerationRules[0].tolerations[0].value: FieldValueInvalid"}},
		"an unknown operator":                {rules: tolerating(corev1.Toleration{Key: "sku", Operator: "Like"}), want: []string{"tolerationRules[0].tolerations[0].operator: FieldValueNotSupported"}},
		"an unknown effect":                  {rules: tolerating(corev1.Toleration{Key: "sku", Effect: "Never"}), want: []string{"tolerationRules[0].tolerations[0].effect: FieldValueNotSupported"}},
		"seconds without NoExecute":          {rules: tolerating(corev1.Toleration{Key: "sku", TolerationSeconds: ptr.To[int64](5)}), want: []string{"tolerationRules[0].tolerations[0].effect: FieldValueInvalid"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			expect.Same(t, "Unexpected errors", tc.want, expect.FieldsAndTypes(validateTolerationRules(tc.rules)))
		})
	}
}
