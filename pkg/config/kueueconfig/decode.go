// SPDX-License-Identifier: Apache-2.0

// Package kueueconfig reads Kueue's own configuration, by Kueue's own code, and follows it:
// what Kueue and this manager both go by is said in one place.
//
// decode.go reads the kind, settings.go picks what we go by and tells differences, gates.go
// resolves feature gates, and follow.go follows the ConfigMap of a cluster.
package kueueconfig

import (
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	configapiv1beta1 "sigs.k8s.io/kueue/apis/config/v1beta1"
	configapi "sigs.k8s.io/kueue/apis/config/v1beta2"
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
		cfg.Namespace = orElse(cfg.Namespace, namespace)
	case *configapiv1beta1.Configuration:
		cfg.Namespace = orElse(cfg.Namespace, namespace)
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

func orElse[T any](value *T, otherwise T) *T {
	if value == nil {
		return &otherwise
	}
	return value
}
