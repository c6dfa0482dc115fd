// SPDX-License-Identifier: Apache-2.0

package kueueconfig

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	configapi "sigs.k8s.io/kueue/apis/config/v1beta2"
	"sigs.k8s.io/kueue/pkg/util/waitforpodsready"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

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
	cases := map[string]struct {
		file string
		want known
	}{
		"Kueue waits for pods by default":             {file: head, want: known{Waits: 30 * time.Minute, Selector: excluded("kube-system", "kueue-system")}},
		"in a file of the version before it does not": {file: headOfV1, want: known{Selector: excluded("kube-system", "kueue-system")}},
		"unless it is turned on there": {
			file: headOfV1 + "waitForPodsReady: {enable: true}\nfeatureGates: {MultiKueue: false}\n",
			want: known{Waits: 5 * time.Minute, Selector: excluded("kube-system", "kueue-system"), Gates: map[string]bool{"MultiKueue": false}},
		},
		"what is set": {
			file: head + "namespace: elsewhere\nmanageJobsWithoutQueueName: true\nwaitForPodsReady: {timeout: 7m}\nintegrations: {labelKeysToCopy: [team]}\n",
			want: known{Waits: 7 * time.Minute, Manages: true, Selector: excluded("kube-system", "elsewhere"), Labels: []string{"team"}},
		},
		"a field of a newer Kueue is left out": {
			file: head + "fromTheFuture: true\n",
			want: known{Waits: 30 * time.Minute, Selector: excluded("kube-system", "kueue-system")},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			expect.Same(t, "Unexpected configuration", tc.want, knownOf(expect.Must(Decode([]byte(tc.file), "kueue-system"))(t)))
		})
	}
}

func TestDecodeErrors(t *testing.T) {
	cases := map[string]struct{ file, want string }{
		"no YAML":            {file: head + "integrations: [", want: "did not find expected node content"},
		"an empty file":      {file: "", want: "'Kind' is missing"},
		"another kind":       {file: strings.Replace(head, "Configuration", "Config", 1), want: `"Config"`},
		"an unknown version": {file: strings.Replace(head, "v1beta2", "v2", 1), want: "config.kueue.x-k8s.io/v2"},
		"a bad selector": {
			file: head + "managedJobsNamespaceSelector: {matchExpressions: [{key: a, operator: Like}]}\n",
			want: "managedJobsNamespaceSelector: \"Like\" is not a valid label selector operator",
		},
		"a bad selector of metrics": {
			file: head + "metrics: {localQueueMetrics: {enable: true, localQueueSelector: {matchExpressions: [{key: a, operator: Like}]}}}\n",
			want: "metrics.localQueueMetrics.localQueueSelector",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := Decode([]byte(tc.file), "kueue-system")
			expect.ErrorWith(t, err, tc.want)
		})
	}
}

func TestDefaultsAreThoseOfAnEmptyFile(t *testing.T) {
	empty := expect.Must(Decode([]byte(head), "kueue-system"))(t)
	expect.Same(t, "Other defaults than those of an empty file", knownOf(empty), knownOf(Defaults("kueue-system")))
}
