// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
)

// TolerationRule adds tolerations to the pods of TrainJobs that ask for some resources.
type TolerationRule = podset.TolerationRule

func validateTolerationRules(rules []TolerationRule) field.ErrorList {
	var errs field.ErrorList
	for i, rule := range rules {
		path := field.NewPath("tolerationRules").Index(i)
		if len(rule.Resources) == 0 {
			errs = append(errs, field.Required(path.Child("resources"), "name the resources that pods have to ask for"))
		}
		for j, pattern := range rule.Resources {
			errs = append(errs, validateResourcePattern(pattern, path.Child("resources").Index(j))...)
		}
		if len(rule.Tolerations) == 0 {
			errs = append(errs, field.Required(path.Child("tolerations"), "name what pods have to tolerate"))
		}
		for j := range rule.Tolerations {
			errs = append(errs, validateToleration(&rule.Tolerations[j], path.Child("tolerations").Index(j))...)
		}
	}
	return errs
}

// validateResourcePattern takes a resource with a domain, or a domain and a beginning:
// pods ask for cpu and memory everywhere.
func validateResourcePattern(pattern string, path *field.Path) field.ErrorList {
	// What a "*" stands for must make a name of the rest, so we try one.
	name := pattern
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		name = prefix + "x"
	}
	if !strings.Contains(name, "/") || strings.Contains(name, "*") {
		return field.ErrorList{field.Invalid(path, pattern, "must be a resource with its domain, such as amd.com/gpu, or its beginning with a \"*\" at the end, such as gpu.intel.com/*")}
	}
	return metav1validation.ValidateLabelName(name, path)
}

// validateToleration follows the API server's rules for pods, but wants a key: a
// toleration of everything opens nodes that are not well, too.
func validateToleration(t *corev1.Toleration, path *field.Path) field.ErrorList {
	if t.Key == "" {
		return field.ErrorList{field.Required(path.Child("key"), "name the taint's key; all taints at once cannot be tolerated")}
	}
	errs := metav1validation.ValidateLabelName(t.Key, path.Child("key"))
	switch t.Operator {
	case corev1.TolerationOpExists:
		if t.Value != "" {
			errs = append(errs, field.Invalid(path.Child("value"), t.Value, "must be empty when operator is Exists"))
		}
	case corev1.TolerationOpEqual, "":
		for _, message := range validation.IsValidLabelValue(t.Value) {
			errs = append(errs, field.Invalid(path.Child("value"), t.Value, message))
		}
	default:
		errs = append(errs, field.NotSupported(path.Child("operator"), t.Operator, []corev1.TolerationOperator{corev1.TolerationOpEqual, corev1.TolerationOpExists}))
	}
	effects := []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}
	if t.Effect != "" && !slices.Contains(effects, t.Effect) {
		errs = append(errs, field.NotSupported(path.Child("effect"), t.Effect, effects))
	}
	if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
		errs = append(errs, field.Invalid(path.Child("effect"), t.Effect, "must be NoExecute when tolerationSeconds is set"))
	}
	return errs
}
