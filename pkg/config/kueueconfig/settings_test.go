// SPDX-License-Identifier: Apache-2.0

package kueueconfig

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	configapi "sigs.k8s.io/kueue/apis/config/v1beta2"
	"sigs.k8s.io/kueue/pkg/features"
	"sigs.k8s.io/kueue/pkg/util/waitforpodsready"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestDifferences(t *testing.T) {
	type row struct {
		file      string
		overrides Overrides
		want      []string
	}
	expect.Rows(t, map[string]row{
		"nothing is overridden": {file: head + "manageJobsWithoutQueueName: true\n"},
		"each setting": {file: head,
			overrides: Overrides{
				ManageJobsWithoutQueueName:   ptr.To(true),
				ManagedJobsNamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}},
				WaitForPodsReady:             &configapi.WaitForPodsReady{Timeout: metav1.Duration{Duration: time.Minute}},
				Integrations:                 Integrations{LabelKeysToCopy: []string{"team"}},
				ObjectRetentionPolicies:      &configapi.ObjectRetentionPolicies{Workloads: &configapi.WorkloadRetentionPolicy{AfterDeactivatedByKueue: &metav1.Duration{}}},
				FeatureGates:                 map[string]bool{"MultiKueue": false, "TopologyAwareScheduling": true},
			},
			want: []string{"manageJobsWithoutQueueName", "managedJobsNamespaceSelector", "waitForPodsReady", "integrations.labelKeysToCopy", "objectRetentionPolicies", "featureGates.MultiKueue"}},
		"the zero value is a value": {file: head + "manageJobsWithoutQueueName: true\nintegrations: {labelKeysToCopy: [team]}\n",
			overrides: Overrides{ManageJobsWithoutQueueName: ptr.To(false), Integrations: Integrations{LabelKeysToCopy: []string{}}},
			want:      []string{"manageJobsWithoutQueueName", "integrations.labelKeysToCopy"}},
		"the same value is none": {file: head + "waitForPodsReady: {timeout: 5m}\nfeatureGates: {MultiKueue: false}\n",
			overrides: Overrides{
				WaitForPodsReady: &configapi.WaitForPodsReady{Timeout: metav1.Duration{Duration: 5 * time.Minute}},
				FeatureGates:     map[string]bool{"MultiKueue": false},
			}},
		"waiting for pods, which a file of the version before leaves off": {file: headOfV1, overrides: Overrides{WaitForPodsReady: &configapi.WaitForPodsReady{}}, want: []string{"waitForPodsReady"}},
		"waiting for pods, which a gate turns off": {file: head, overrides: Overrides{FeatureGates: map[string]bool{"DisableWaitForPodsReady": true}},
			want: []string{"waitForPodsReady", "featureGates.DisableWaitForPodsReady"}},
	}, func(t *testing.T, tc row) {
		cfg := expect.Must(Decode([]byte(tc.file), "kueue-system"))(t)
		kueues, here := mustOf(t, cfg, Overrides{}), mustOf(t, cfg, tc.overrides)
		differences := slices.Concat(Differences(kueues, here), GateDifferences(kueues, here))
		expect.Same(t, "Unexpected differences", tc.want, expect.Each(differences, func(d Difference) string { return d.Setting }))
	})
}

func mustOf(t *testing.T, cfg *configapi.Configuration, overrides Overrides) *Settings {
	t.Helper()
	return expect.Must(Of(cfg, overrides))(t)
}

func TestOfCopiesWhatMetricsHaveAsLabels(t *testing.T) {
	const file = head + `
integrations: {labelKeysToCopy: [team]}
metrics:
  customLabels:
  - {name: cost, sourceKind: Workload, sourceLabelKey: cost-center}
  - {name: note, sourceKind: Workload, sourceAnnotationKey: note}
  - {name: of_queues, sourceKind: LocalQueue, sourceLabelKey: owner}
`
	type copied struct {
		Labels, Annotations []string
		OfMetrics           int
	}
	for gate, want := range map[string]copied{
		"off": {Labels: []string{"team"}, Annotations: []string{}},
		"on":  {Labels: []string{"cost-center", "team"}, Annotations: []string{"note"}, OfMetrics: 3},
	} {
		t.Run("gate "+gate, func(t *testing.T) {
			cfg := expect.Must(Decode([]byte(file), "kueue-system"))(t)
			settings := mustOf(t, cfg, Overrides{FeatureGates: map[string]bool{"CustomMetricLabels": gate == "on"}})
			got := copied{settings.LabelKeysToCopy, settings.AnnotationKeysToCopy, len(settings.CustomLabels)}
			expect.Same(t, "Unexpected keys", want, got)
		})
	}
}

func TestOfLeavesOutGatesItDoesNotKnow(t *testing.T) {
	settings, err := Of(Defaults("kueue-system"), Overrides{FeatureGates: map[string]bool{"FromTheFuture": true, "MultiKueue": false}})
	expect.ErrorWith(t, err, "FromTheFuture")
	_, found := settings.FeatureGates["FromTheFuture"]
	expect.That(t, !found && !settings.FeatureGates["MultiKueue"], "FromTheFuture is there: %t, MultiKueue: %t", found, settings.FeatureGates["MultiKueue"])
}

func TestApplyGates(t *testing.T) {
	// Brings the gates back after the test.
	features.SetFeatureGateDuringTest(t, features.TopologyAwareScheduling, true)
	features.SetFeatureGateDuringTest(t, features.MultiKueue, true)
	off := mustOf(t, Defaults("kueue-system"), Overrides{FeatureGates: map[string]bool{"TopologyAwareScheduling": false}})
	expect.NoError(t, applyGates(off.FeatureGates))
	expect.That(t, !features.Enabled(features.TopologyAwareScheduling) && features.Enabled(features.MultiKueue),
		"TopologyAwareScheduling is %t, MultiKueue %t", features.Enabled(features.TopologyAwareScheduling), features.Enabled(features.MultiKueue))
	// A gate that is not set any more has its default again.
	expect.NoError(t, applyGates(mustOf(t, Defaults("kueue-system"), Overrides{}).FeatureGates))
	expect.That(t, features.Enabled(features.TopologyAwareScheduling), "TopologyAwareScheduling is still off")
	expect.ErrorWith(t, UseGates(map[string]bool{"FromTheFuture": true, "MultiKueue": false}), "FromTheFuture")
	expect.That(t, !features.Enabled(features.MultiKueue), "MultiKueue is on beside a gate that is not known")
}

const (
	head     = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
	headOfV1 = "apiVersion: config.kueue.x-k8s.io/v1beta1\nkind: Configuration\n"
)

// excluded is Kueue's default selector.
func excluded(namespaces ...string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
		Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpNotIn, Values: namespaces,
	}}}
}

// known is what the tests look at in a decoded configuration.
type known struct {
	Waits    time.Duration
	Manages  bool
	Selector *metav1.LabelSelector
	Labels   []string
	Gates    map[string]bool
}

func knownOf(cfg *configapi.Configuration) known {
	k := known{Manages: cfg.ManageJobsWithoutQueueName, Selector: cfg.ManagedJobsNamespaceSelector, Labels: cfg.Integrations.LabelKeysToCopy, Gates: cfg.FeatureGates}
	if waitforpodsready.Enabled(cfg.WaitForPodsReady) {
		k.Waits = cfg.WaitForPodsReady.Timeout.Duration
	}
	return k
}

func TestDecode(t *testing.T) {
	expect.Rows(t, map[string]expect.Row[string, known]{
		"Kueue waits for pods by default":             {In: head, Want: known{Waits: 30 * time.Minute, Selector: excluded("kube-system", "kueue-system")}},
		"in a file of the version before it does not": {In: headOfV1, Want: known{Selector: excluded("kube-system", "kueue-system")}},
		"unless it is turned on there": {In: headOfV1 + "waitForPodsReady: {enable: true}\nfeatureGates: {MultiKueue: false}\n",
			Want: known{Waits: 5 * time.Minute, Selector: excluded("kube-system", "kueue-system"), Gates: map[string]bool{"MultiKueue": false}}},
		"what is set": {In: head + "namespace: elsewhere\nmanageJobsWithoutQueueName: true\nwaitForPodsReady: {timeout: 7m}\nintegrations: {labelKeysToCopy: [team]}\n",
			Want: known{Waits: 7 * time.Minute, Manages: true, Selector: excluded("kube-system", "elsewhere"), Labels: []string{"team"}}},
		"a field of a newer Kueue is left out": {In: head + "fromTheFuture: true\n",
			Want: known{Waits: 30 * time.Minute, Selector: excluded("kube-system", "kueue-system")}},
	}, func(t *testing.T, tc expect.Row[string, known]) {
		expect.Same(t, "Unexpected configuration", tc.Want, knownOf(expect.Must(Decode([]byte(tc.In), "kueue-system"))(t)))
	})
	empty := expect.Must(Decode([]byte(head), "kueue-system"))(t)
	expect.Same(t, "Other defaults than those of an empty file", knownOf(empty), knownOf(Defaults("kueue-system")))
}

func TestDecodeErrors(t *testing.T) {
	expect.Rows(t, map[string]expect.Row[string, string]{
		"no YAML":            {In: head + "integrations: [", Want: "did not find expected node content"},
		"an empty file":      {In: "", Want: "'Kind' is missing"},
		"another kind":       {In: strings.Replace(head, "Configuration", "Config", 1), Want: `"Config"`},
		"an unknown version": {In: strings.Replace(head, "v1beta2", "v2", 1), Want: "config.kueue.x-k8s.io/v2"},
		"a bad selector": {In: head + "managedJobsNamespaceSelector: {matchExpressions: [{key: a, operator: Like}]}\n",
			Want: "managedJobsNamespaceSelector: \"Like\" is not a valid label selector operator"},
		"a bad selector of metrics": {In: head + "metrics: {localQueueMetrics: {enable: true, localQueueSelector: {matchExpressions: [{key: a, operator: Like}]}}}\n",
			Want: "metrics.localQueueMetrics.localQueueSelector"},
	}, func(t *testing.T, tc expect.Row[string, string]) {
		_, err := Decode([]byte(tc.In), "kueue-system")
		expect.ErrorWith(t, err, tc.Want)
	})
}
