// SPDX-License-Identifier: Apache-2.0

package config

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	configapi "sigs.k8s.io/kueue/apis/config/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestValidate(t *testing.T) {
	selector := func(s metav1.LabelSelector) func(*Configuration) {
		return func(c *Configuration) { c.ManagedJobsNamespaceSelector = &s }
	}
	notIn := func(namespaces ...string) metav1.LabelSelector {
		return metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
			Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpNotIn, Values: namespaces,
		}}}
	}
	workers := func(m map[string]int) func(*Configuration) {
		return func(c *Configuration) { c.Controller.GroupKindConcurrency = m }
	}
	for name, tc := range map[string]struct {
		change func(*Configuration)
		want   []string
	}{
		"the defaults":                     {change: func(*Configuration) {}},
		"no apiVersion":                    {change: func(c *Configuration) { c.APIVersion = "" }, want: []string{"apiVersion: FieldValueNotSupported"}},
		"no kind":                          {change: func(c *Configuration) { c.Kind = "" }, want: []string{"kind: FieldValueNotSupported"}},
		"a port that is none":              {change: func(c *Configuration) { c.Webhook.Port = ptr.To(99999) }, want: []string{"webhook.port: FieldValueInvalid"}},
		"no burst":                         {change: func(c *Configuration) { c.ClientConnection.Burst = ptr.To[int32](-5) }, want: []string{"clientConnection.burst: FieldValueInvalid"}},
		"a lease that ends before renewal": {change: func(c *Configuration) { c.LeaderElection.LeaseDuration.Duration = time.Second }, want: []string{"leaderElection.leaseDuration: FieldValueInvalid"}},
		"no time to start":                 {change: func(c *Configuration) { c.StartTimeout.Duration = -time.Minute }, want: []string{"startTimeout: FieldValueInvalid"}},
		"no wait":                          {change: func(c *Configuration) { c.WaitForJobSet.Duration = 0 }},
		"less than no wait":                {change: func(c *Configuration) { c.WaitForJobSet.Duration = -1 }, want: []string{"waitForJobSet: FieldValueInvalid"}},
		"profiles":                         {change: func(c *Configuration) { c.Metrics.Pprof = true }},
		"profiles for everybody":           {change: func(c *Configuration) { c.Metrics.Pprof, c.Metrics.SecureServing = true, ptr.To(false) }, want: []string{"metrics.pprof: FieldValueForbidden"}},
		"many workers":                     {change: workers(map[string]int{TrainJobKind: 50})},
		"no workers":                       {change: workers(map[string]int{TrainJobKind: 0}), want: []string{"controller.groupKindConcurrency[TrainJob.trainer.kubeflow.org]: FieldValueInvalid"}},
		"fewer than none":                  {change: workers(map[string]int{TrainJobKind: -1}), want: []string{"controller.groupKindConcurrency[TrainJob.trainer.kubeflow.org]: FieldValueInvalid"}},
		"workers of another kind":          {change: workers(map[string]int{"Job.batch": 1}), want: []string{"controller.groupKindConcurrency: FieldValueNotSupported"}},
		"workers of the kind in short":     {change: workers(map[string]int{"TrainJob": 1}), want: []string{"controller.groupKindConcurrency: FieldValueNotSupported"}},
		"a selector by label":              {change: selector(metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}})},
		"a selector of everything":         {change: selector(metav1.LabelSelector{}), want: []string{"managedJobsNamespaceSelector: FieldValueInvalid", "managedJobsNamespaceSelector: FieldValueInvalid"}},
		"a selector that has kube-system":  {change: selector(notIn("kueue-system")), want: []string{"managedJobsNamespaceSelector: FieldValueInvalid"}},
		"a selector that has kueue-system": {change: selector(notIn("kube-system")), want: []string{"managedJobsNamespaceSelector: FieldValueInvalid"}},
		"a selector that cannot be read": {change: selector(metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "k", Operator: "Like", Values: []string{"v"}}}}),
			want: []string{"managedJobsNamespaceSelector.matchExpressions[0].operator: FieldValueInvalid"}},
		"a selector with a bad key": {change: selector(metav1.LabelSelector{MatchLabels: map[string]string{"no key": "v"}}),
			want: []string{"managedJobsNamespaceSelector.matchLabels: FieldValueInvalid"}},
		"known gates, on and off": {change: func(c *Configuration) {
			c.FeatureGates = map[string]bool{"TopologyAwareScheduling": true, "MultiKueue": false}
		}},
		"an unknown gate, even if off": {change: func(c *Configuration) { c.FeatureGates = map[string]bool{"Nothing": false, "Anything": true} },
			want: []string{"featureGates[Anything]: FieldValueInvalid", "featureGates[Nothing]: FieldValueInvalid"}},
		"a negative timeout": {change: func(c *Configuration) {
			c.WaitForPodsReady = &configapi.WaitForPodsReady{Timeout: metav1.Duration{Duration: -time.Second}}
		}, want: []string{"waitForPodsReady.timeout: FieldValueInvalid"}},
	} {
		t.Run(name, func(t *testing.T) {
			expect.Same(t, "Unexpected errors", tc.want, expect.FieldsAndTypes(validate(changed(tc.change))))
		})
	}
}

func TestValidateTolerationRules(t *testing.T) {
	exists := corev1.Toleration{Key: "amd.com/gpu", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
	tolerating := func(t corev1.Toleration) []TolerationRule {
		return []TolerationRule{{Resources: []string{"amd.com/gpu"}, Tolerations: []corev1.Toleration{t}}}
	}
	forResource := func(names ...string) []TolerationRule {
		return []TolerationRule{{Resources: names, Tolerations: []corev1.Toleration{exists}}}
	}
	for name, tc := range map[string]struct {
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
	} {
		t.Run(name, func(t *testing.T) {
			expect.Same(t, "Unexpected errors", tc.want, expect.FieldsAndTypes(validateTolerationRules(tc.rules)))
		})
	}
}
