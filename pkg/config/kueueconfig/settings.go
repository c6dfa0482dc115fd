// SPDX-License-Identifier: Apache-2.0

package kueueconfig

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	configapi "sigs.k8s.io/kueue/apis/config/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
)

// Overrides are settings of Kueue's as the manager's own configuration has them. What is
// set counts instead of Kueue's; what is not set is Kueue's.
type Overrides struct {
	// ManageJobsWithoutQueueName, as in Kueue's configuration. Default: Kueue's.
	ManageJobsWithoutQueueName *bool `json:"manageJobsWithoutQueueName,omitempty"`
	// ManagedJobsNamespaceSelector, as in Kueue's configuration. Default: Kueue's.
	ManagedJobsNamespaceSelector *metav1.LabelSelector `json:"managedJobsNamespaceSelector,omitempty"`
	// WaitForPodsReady, as in Kueue's configuration. Default: Kueue's. It is turned off by
	// feature gate DisableWaitForPodsReady, as in Kueue.
	WaitForPodsReady *configapi.WaitForPodsReady `json:"waitForPodsReady,omitempty"`
	// Integrations, as in Kueue's configuration, as far as it concerns one kind.
	Integrations Integrations `json:"integrations,omitzero"`
	// ObjectRetentionPolicies, as in Kueue's configuration. Default: Kueue's.
	ObjectRetentionPolicies *configapi.ObjectRetentionPolicies `json:"objectRetentionPolicies,omitempty"`
	// FeatureGates of Kueue, gate by gate. Default: Kueue's.
	FeatureGates map[string]bool `json:"featureGates,omitempty"`
}

// Integrations is the part of Kueue's setting of that name that concerns one kind.
type Integrations struct {
	// LabelKeysToCopy are labels copied from TrainJobs to their Workloads; an empty list
	// copies none. Default: Kueue's.
	LabelKeysToCopy []string `json:"labelKeysToCopy,omitzero"`
}

// InTreeFramework is the name of Kueue's own integration of TrainJobs in integrations.frameworks.
const InTreeFramework = "trainer.kubeflow.org/trainjob"

// Settings are what this manager needs to know of Kueue's configuration. They do not change;
// another configuration makes others.
type Settings struct {
	ManageJobsWithoutQueueName   bool
	ManagedJobsNamespaceSelector *metav1.LabelSelector
	// InTree: Kueue's own integration of TrainJobs is among its frameworks.
	InTree bool
	// WaitForPodsReady is nil where Kueue does not wait.
	WaitForPodsReady        *configapi.WaitForPodsReady
	LabelKeysToCopy         []string
	AnnotationKeysToCopy    []string
	ObjectRetentionPolicies *configapi.ObjectRetentionPolicies
	LocalQueueMetrics       *configapi.LocalQueueMetrics
	// CustomLabels of metrics; none where their gate is off.
	CustomLabels []configapi.ControllerMetricsCustomLabel
	// FeatureGates are the values of all gates.
	FeatureGates map[string]bool
}

// NamespaceSelector returns ManagedJobsNamespaceSelector as a selector.
func (s *Settings) NamespaceSelector() labels.Selector {
	selector, err := metav1.LabelSelectorAsSelector(s.ManagedJobsNamespaceSelector)
	if err != nil {
		return labels.Nothing() // validated before
	}
	return selector
}

// DeletesFinished reports whether Kueue deletes finished Workloads.
func (s *Settings) DeletesFinished() bool {
	keeps := s.ObjectRetentionPolicies
	return keeps != nil && keeps.Workloads != nil && keeps.Workloads.AfterFinished != nil
}

// LabelCommand returns the kubectl command that labels a namespace as NamespaceSelector asks; empty where it asks for
// more than labels.
func (s *Settings) LabelCommand(namespace string) string {
	selector := s.ManagedJobsNamespaceSelector
	if selector == nil || len(selector.MatchLabels) == 0 || len(selector.MatchExpressions) > 0 {
		return ""
	}
	return "kubectl label namespace " + namespace + " " + strings.ReplaceAll(labels.FormatLabels(selector.MatchLabels), ",", " ")
}

// LabelledAt returns when the labels of a namespace changed last that NamespaceSelector asks for, as its managed fields
// say; zero where they say nothing. Whoever changed other fields as the same manager made it later.
func (s *Settings) LabelledAt(namespace *corev1.Namespace) time.Time {
	requirements, _ := s.NamespaceSelector().Requirements()
	var keys []string
	for _, r := range requirements {
		if r.Key() != corev1.LabelMetadataName {
			keys = append(keys, r.Key())
		}
	}
	return LastWritten(namespace.ManagedFields, keys...)
}

// LastWritten returns when one of these fields was written last, as managed fields say; zero where they say nothing.
func LastWritten(managed []metav1.ManagedFieldsEntry, fields ...string) (last time.Time) {
	for _, entry := range managed {
		if entry.Time == nil || entry.FieldsV1 == nil || !entry.Time.After(last) {
			continue
		}
		if slices.ContainsFunc(fields, func(field string) bool {
			return bytes.Contains(entry.FieldsV1.GetRawBytes(), []byte(`"f:`+field+`"`))
		}) {
			last = entry.Time.Time
		}
	}
	return last
}

// Of returns the settings of Kueue's configuration under overrides. The error is of feature
// gates that this version does not know, or cannot change; they are left out.
func Of(kueues *configapi.Configuration, overrides Overrides) (*Settings, error) {
	cfg := overrides.over(kueues)
	gates, err := resolve(cfg.FeatureGates)
	var custom []configapi.ControllerMetricsCustomLabel
	if gates[kueuelib.CustomMetricLabels] {
		custom = cfg.Metrics.CustomLabels
	}
	// Workloads get from jobs what Kueue is told to copy, and what its metrics have as labels.
	labelKeys, annotationKeys := kueuelib.CustomLabelSources(custom)
	if cfg.Integrations != nil {
		labelKeys.Insert(cfg.Integrations.LabelKeysToCopy...)
	}
	waits := cfg.WaitForPodsReady
	if gates[kueuelib.DisableWaitForPodsReady] {
		waits = nil
	}
	return &Settings{
		ManageJobsWithoutQueueName:   cfg.ManageJobsWithoutQueueName,
		ManagedJobsNamespaceSelector: cfg.ManagedJobsNamespaceSelector,
		InTree:                       cfg.Integrations != nil && slices.Contains(cfg.Integrations.Frameworks, InTreeFramework),
		WaitForPodsReady:             waits,
		LabelKeysToCopy:              sets.List(labelKeys),
		AnnotationKeysToCopy:         sets.List(annotationKeys),
		ObjectRetentionPolicies:      cfg.ObjectRetentionPolicies,
		LocalQueueMetrics:            cfg.Metrics.LocalQueueMetrics,
		CustomLabels:                 custom,
		FeatureGates:                 gates,
	}, err
}

// over returns Kueue's configuration with what is set here instead of what Kueue has.
// Kueue's own defaults fill in what an override leaves open; they come only where there is
// one, since they would turn on what a file of an older version leaves off.
func (o Overrides) over(kueues *configapi.Configuration) *configapi.Configuration {
	cfg := kueues.DeepCopy()
	if o.ManageJobsWithoutQueueName != nil {
		cfg.ManageJobsWithoutQueueName = *o.ManageJobsWithoutQueueName
	}
	if o.ManagedJobsNamespaceSelector != nil {
		cfg.ManagedJobsNamespaceSelector = o.ManagedJobsNamespaceSelector
	}
	if o.WaitForPodsReady != nil {
		own := &configapi.Configuration{Namespace: cfg.Namespace, WaitForPodsReady: o.WaitForPodsReady.DeepCopy()}
		scheme.Default(own)
		cfg.WaitForPodsReady = own.WaitForPodsReady
	}
	if o.Integrations.LabelKeysToCopy != nil {
		cfg.Integrations = cmp.Or(cfg.Integrations, &configapi.Integrations{})
		cfg.Integrations.LabelKeysToCopy = o.Integrations.LabelKeysToCopy
	}
	if o.ObjectRetentionPolicies != nil {
		cfg.ObjectRetentionPolicies = o.ObjectRetentionPolicies
	}
	gates := map[string]bool{}
	maps.Copy(gates, cfg.FeatureGates)
	maps.Copy(gates, o.FeatureGates)
	cfg.FeatureGates = gates
	return cfg
}

// Difference is a setting that has another value here than in Kueue.
type Difference struct {
	// Setting is its field in the configuration.
	Setting     string
	Kueue, Here any
}

// Differences returns the settings in which here is not as kueues, feature gates apart.
func Differences(kueues, here *Settings) []Difference {
	all := []Difference{
		{"manageJobsWithoutQueueName", kueues.ManageJobsWithoutQueueName, here.ManageJobsWithoutQueueName},
		{"managedJobsNamespaceSelector", kueues.ManagedJobsNamespaceSelector, here.ManagedJobsNamespaceSelector},
		{"waitForPodsReady", kueues.WaitForPodsReady, here.WaitForPodsReady},
		{"integrations.labelKeysToCopy", kueues.LabelKeysToCopy, here.LabelKeysToCopy},
		{"objectRetentionPolicies", kueues.ObjectRetentionPolicies, here.ObjectRetentionPolicies},
	}
	return slices.DeleteFunc(all, func(d Difference) bool { return equality.Semantic.DeepEqual(d.Kueue, d.Here) })
}

// GateDifferences returns the feature gates in which here is not as kueues.
func GateDifferences(kueues, here *Settings) []Difference {
	var differ []Difference
	for _, name := range slices.Sorted(maps.Keys(kueues.FeatureGates)) {
		if there, own := kueues.FeatureGates[name], here.FeatureGates[name]; there != own {
			differ = append(differ, Difference{"featureGates." + name, there, own})
		}
	}
	return differ
}

// Behind returns a pod that runs now with a ConfigMap as it was before its data changed last, and when that was: Kueue
// reads its configuration when it starts, and not again. It returns nil where there is none that says so. A pod that
// was made since is none, whatever the clock of its node says, nor is one that is past its grace period: its node is lost.
// Whoever changed other fields of the ConfigMap as the manager of its data made that time later.
func Behind(cm *corev1.ConfigMap, pods []corev1.Pod, now time.Time) (*corev1.Pod, time.Time) {
	changed := cm.CreationTimestamp.Time
	if written := LastWritten(cm.ManagedFields, "data"); written.After(changed) {
		changed = written
	}
	for i := range pods {
		pod := &pods[i]
		gone := pod.DeletionTimestamp != nil && pod.DeletionTimestamp.Time.Before(now)
		if pod.Namespace == cm.Namespace && pod.CreationTimestamp.Time.Before(changed) && !gone && startedBefore(pod, cm.Name, changed) {
			return pod, changed
		}
	}
	return nil, time.Time{}
}

// startedBefore reports whether a container that mounts a ConfigMap runs since before a time.
func startedBefore(pod *corev1.Pod, configMap string, at time.Time) bool {
	for _, container := range pod.Spec.Containers {
		if !mounts(pod, container.VolumeMounts, configMap) {
			continue
		}
		for _, status := range pod.Status.ContainerStatuses {
			if running := status.State.Running; status.Name == container.Name && running != nil && running.StartedAt.Time.Before(at) {
				return true
			}
		}
	}
	return false
}

func mounts(pod *corev1.Pod, mounts []corev1.VolumeMount, configMap string) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(volume corev1.Volume) bool {
		return volume.ConfigMap != nil && volume.ConfigMap.Name == configMap &&
			slices.ContainsFunc(mounts, func(mount corev1.VolumeMount) bool { return mount.Name == volume.Name })
	})
}
