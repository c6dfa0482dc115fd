// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kueue-trainer/kueue-trainer/pkg/config/kueueconfig"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
)

// validate returns every error of a defaulted configuration, each with its field.
func validate(cfg *Configuration) field.ErrorList {
	var errs field.ErrorList
	if cfg.APIVersion != APIVersion {
		errs = append(errs, field.NotSupported(field.NewPath("apiVersion"), cfg.APIVersion, []string{APIVersion}))
	}
	if cfg.Kind != Kind {
		errs = append(errs, field.NotSupported(field.NewPath("kind"), cfg.Kind, []string{Kind}))
	}
	errs = slices.Concat(errs, validateServing(cfg), validateConcurrency(cfg.Controller.GroupKindConcurrency), validateSelector(cfg),
		validateGates(cfg.FeatureGates), validateTolerationRules(cfg.TolerationRules))
	if w := cfg.WaitForPodsReady; w != nil && w.Timeout.Duration < 0 {
		errs = append(errs, field.Invalid(field.NewPath("waitForPodsReady", "timeout"), w.Timeout.String(), "must not be negative"))
	}
	if timeout := cfg.StartTimeout.Duration; timeout < time.Second {
		errs = append(errs, field.Invalid(field.NewPath("startTimeout"), timeout.String(), "must be at least 1s"))
	}
	if wait := cfg.WaitForJobSet.Duration; wait < 0 {
		errs = append(errs, field.Invalid(field.NewPath("waitForJobSet"), wait.String(), "must not be negative; 0s has TrainJobs queue without waiting"))
	}
	return errs
}

func validateServing(cfg *Configuration) field.ErrorList {
	var errs field.ErrorList
	for _, message := range validation.IsValidPortNum(*cfg.Webhook.Port) {
		errs = append(errs, field.Invalid(field.NewPath("webhook", "port"), *cfg.Webhook.Port, message))
	}
	if *cfg.ClientConnection.QPS == 0 {
		errs = append(errs, field.Invalid(field.NewPath("clientConnection", "qps"), 0, "must not be 0; a negative one is no limit"))
	}
	if burst := *cfg.ClientConnection.Burst; burst < 1 && *cfg.ClientConnection.QPS >= 0 {
		errs = append(errs, field.Invalid(field.NewPath("clientConnection", "burst"), burst, "must be at least 1"))
	}
	if cfg.Metrics.Pprof && !*cfg.Metrics.SecureServing {
		errs = append(errs, field.Forbidden(field.NewPath("metrics", "pprof"), "profiles hold what the manager has in memory; set metrics.secureServing to true"))
	}
	if label := cfg.Metrics.UserLabel; label != "" {
		errs = append(errs, metav1validation.ValidateLabelName(label, field.NewPath("metrics", "userLabel"))...)
	}
	le, path := cfg.LeaderElection, field.NewPath("leaderElection")
	if le.LeaseDuration.Duration <= le.RenewDeadline.Duration {
		errs = append(errs, field.Invalid(path.Child("leaseDuration"), le.LeaseDuration.Duration.String(), "must be longer than renewDeadline"))
	}
	if le.RenewDeadline.Duration <= le.RetryPeriod.Duration {
		errs = append(errs, field.Invalid(path.Child("renewDeadline"), le.RenewDeadline.Duration.String(), "must be longer than retryPeriod"))
	}
	return errs
}

func validateConcurrency(workers map[string]int) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("controller", "groupKindConcurrency")
	for _, kind := range slices.Sorted(maps.Keys(workers)) {
		if kind != TrainJobKind {
			errs = append(errs, field.NotSupported(path, kind, []string{TrainJobKind}))
		} else if workers[kind] < 1 {
			errs = append(errs, field.Invalid(path.Key(kind), workers[kind], "must be at least 1"))
		}
	}
	return errs
}

// validateSelector checks an override as Kueue checks its own setting.
func validateSelector(cfg *Configuration) field.ErrorList {
	path := field.NewPath("managedJobsNamespaceSelector")
	if cfg.ManagedJobsNamespaceSelector == nil {
		return nil
	}
	errs := metav1validation.ValidateLabelSelector(cfg.ManagedJobsNamespaceSelector, metav1validation.LabelSelectorValidationOptions{}, path)
	if len(errs) > 0 {
		return errs
	}
	selector := (&kueueconfig.Settings{ManagedJobsNamespaceSelector: cfg.ManagedJobsNamespaceSelector}).NamespaceSelector()
	for _, namespace := range []string{metav1.NamespaceSystem, cfg.KueueConfigMap.Namespace} {
		if selector.Matches(labels.Set{corev1.LabelMetadataName: namespace}) {
			errs = append(errs, field.Invalid(path, selector.String(), fmt.Sprintf("must not match namespace %s", namespace)))
		}
	}
	return errs
}

func validateGates(gates map[string]bool) field.ErrorList {
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(gates)) {
		if !kueueconfig.KnowsGate(name) {
			errs = append(errs, field.Invalid(field.NewPath("featureGates").Key(name), gates[name], "is not a feature gate of the Kueue version this manager is built with"))
		}
	}
	return errs
}

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
