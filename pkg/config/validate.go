// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kueue-trainer/kueue-trainer/pkg/config/kueueconfig"
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
	errs = append(errs, validateServing(cfg)...)
	if label := cfg.Metrics.UserLabel; label != "" {
		errs = append(errs, metav1validation.ValidateLabelName(label, field.NewPath("metrics", "userLabel"))...)
	}
	errs = append(errs, validateConcurrency(cfg.Controller.GroupKindConcurrency)...)
	errs = append(errs, validateSelector(cfg)...)
	errs = append(errs, validateGates(cfg.FeatureGates)...)
	errs = append(errs, validateTolerationRules(cfg.TolerationRules)...)
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

// validateServing checks ports, request limits and the lease.
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
