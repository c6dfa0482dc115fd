// SPDX-License-Identifier: Apache-2.0

// Package kueueconfig reads Kueue's own configuration, by Kueue's own code, and follows it:
// what Kueue and this manager both go by is said in one place.
package kueueconfig

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
	configapiv1beta1 "sigs.k8s.io/kueue/apis/config/v1beta1"
	configapi "sigs.k8s.io/kueue/apis/config/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
)

var (
	scheme = newScheme()
	codecs = serializer.NewCodecFactory(scheme)
)

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(configapiv1beta1.AddToScheme(scheme))
	utilruntime.Must(configapi.AddToScheme(scheme))
	return scheme
}

// Decode returns what Kueue, running in namespace, makes of its configuration file. Fields
// that this version of Kueue's API does not know are left out: a newer Kueue has more.
func Decode(file []byte, namespace string) (*configapi.Configuration, error) {
	obj, kind, err := codecs.UniversalDeserializer().Decode(file, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("decoding Kueue's configuration: %w", err)
	}
	// Kueue's defaulting asks the file system for its namespace, and would find ours.
	switch cfg := obj.(type) {
	case *configapi.Configuration:
		cfg.Namespace = cmp.Or(cfg.Namespace, &namespace)
	case *configapiv1beta1.Configuration:
		cfg.Namespace = cmp.Or(cfg.Namespace, &namespace)
	default:
		return nil, fmt.Errorf("decoding Kueue's configuration: it is a %s", kind)
	}
	scheme.Default(obj)
	cfg := &configapi.Configuration{}
	if beta2, ok := obj.(*configapi.Configuration); ok {
		cfg = beta2
	} else if err := scheme.Convert(obj, cfg, nil); err != nil {
		return nil, fmt.Errorf("converting Kueue's configuration: %w", err)
	}
	return cfg, validate(cfg)
}

// Defaults returns the configuration of a Kueue that runs in namespace without a file.
func Defaults(namespace string) *configapi.Configuration {
	cfg := &configapi.Configuration{Namespace: &namespace}
	scheme.Default(cfg)
	return cfg
}

// validate checks what would stop this manager.
func validate(cfg *configapi.Configuration) error {
	_, err := metav1.LabelSelectorAsSelector(cfg.ManagedJobsNamespaceSelector)
	if err != nil {
		err = fmt.Errorf("managedJobsNamespaceSelector: %w", err)
	}
	metrics := cfg.Metrics.LocalQueueMetrics
	if metrics == nil {
		return err
	}
	if _, errMetrics := metav1.LabelSelectorAsSelector(metrics.LocalQueueSelector); errMetrics != nil {
		err = errors.Join(err, fmt.Errorf("metrics.localQueueMetrics.localQueueSelector: %w", errMetrics))
	}
	return err
}

// KnowsGate reports whether a feature gate is one of the Kueue that this program is built with.
func KnowsGate(name string) bool {
	_, known := utilfeature.DefaultMutableFeatureGate.GetAll()[featuregate.Feature(name)]
	return known
}

// resolve returns the value of every gate where some are set. Gates that are not known, or
// are locked, are in the error and change nothing.
func resolve(set map[string]bool) (map[string]bool, error) {
	gates := utilfeature.DefaultMutableFeatureGate.DeepCopyAndReset()
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(set)) {
		// One that is refused is kept all the same, and would refuse those after it.
		with := gates.DeepCopy()
		if err := with.SetFromMap(map[string]bool{name: set[name]}); err != nil {
			errs = append(errs, fmt.Errorf("featureGates: %w", err))
			continue
		}
		gates = with
	}
	values := map[string]bool{}
	for name := range gates.GetAll() {
		values[string(name)] = gates.Enabled(name)
	}
	return values, errors.Join(errs...)
}

// UseGates sets Kueue's gates in this process as its configuration does. The error is of those that are left out. It is for
// the plugin, which lives as long as one command.
func UseGates(set map[string]bool) error {
	values, err := resolve(set)
	return errors.Join(err, applyGates(values))
}

// applyGates brings the gates of this process to values. Those that have them already are
// not touched: Kueue's code reads them meanwhile. Nor is that of labels of metrics, which goes
// with the metrics that this process has made.
func applyGates(values map[string]bool) error {
	gates := utilfeature.DefaultMutableFeatureGate
	change := map[string]bool{}
	for name, value := range values {
		if name != kueuelib.CustomMetricLabels && gates.Enabled(featuregate.Feature(name)) != value {
			change[name] = value
		}
	}
	if len(change) == 0 {
		return nil
	}
	if err := gates.SetFromMap(change); err != nil {
		return fmt.Errorf("featureGates: %w", err)
	}
	return nil
}
