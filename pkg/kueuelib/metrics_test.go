// SPDX-License-Identifier: Apache-2.0

package kueuelib

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	configapi "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestObserveReadyHasTheLabelsOfTheQueues(t *testing.T) {
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "gpus", Labels: map[string]string{"team": "vision"}}}
	lq := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: "jobs", Name: "queue", Annotations: map[string]string{"example.com/project": "ocr"}}}
	wl := kit.With(kit.Workload("jobs", "llm", "queue", time.Time{}), kit.Runs("gpus", "", time.Now()))

	labels := expect.Must(NewCustomLabels(nil))(t)
	ObserveReady(wl, true, labels)
	expect.Same(t, "Unexpected labels where none are configured", map[string]string{}, customLabels(t))

	labels = expect.Must(NewCustomLabels([]configapi.ControllerMetricsCustomLabel{
		{Name: "team"},
		{Name: "project", SourceKind: new(configapi.SourceKindLocalQueue), SourceAnnotationKey: "example.com/project"},
	}))(t)
	StoreQueue(labels, cq)
	StoreQueue(labels, lq)
	ObserveReady(wl, true, labels)
	want := map[string]string{
		"kueue_ready_wait_time_seconds custom_team":                               "vision",
		"kueue_admitted_until_ready_wait_time_seconds custom_team":                "vision",
		"kueue_local_queue_ready_wait_time_seconds custom_project":                "ocr",
		"kueue_local_queue_admitted_until_ready_wait_time_seconds custom_project": "ocr",
	}
	expect.Same(t, "Unexpected labels", want, customLabels(t))
}

func customLabels(t *testing.T) map[string]string {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(JobMetrics()...)
	families := expect.Must(registry.Gather())(t)
	expect.Need(t, len(families) != 0, "Nothing was recorded")
	values := map[string]string{}
	for _, family := range families {
		for _, label := range family.GetMetric()[0].GetLabel() {
			if strings.HasPrefix(label.GetName(), "custom_") {
				values[family.GetName()+" "+label.GetName()] = label.GetValue()
			}
		}
	}
	return values
}
