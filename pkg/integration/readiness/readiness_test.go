// SPDX-License-Identifier: Apache-2.0

package readiness

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/testenv"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobclient"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/queues"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestNextReadiness(t *testing.T) {
	begin := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	condition := func(kind string, status metav1.ConditionStatus, reason string, seconds int) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: reason, LastTransitionTime: metav1.NewTime(begin.Add(time.Duration(seconds) * time.Second))}
	}
	podsReady := func(r readiness, seconds int) metav1.Condition {
		return condition(kueue.WorkloadPodsReady, r.status, r.reason, seconds)
	}
	admitted := condition(kueue.WorkloadAdmitted, metav1.ConditionTrue, "Admitted", 10)
	evicted := condition(kueue.WorkloadEvicted, metav1.ConditionTrue, "Preempted", 50)
	finished := condition(kueue.WorkloadFinished, metav1.ConditionTrue, "Succeeded", 50)
	type row struct {
		conditions []metav1.Condition
		unhealthy  []kueue.UnhealthyNode
		ready      bool
		want       *readiness
	}
	expect.Rows(t, map[string]row{
		"nothing is written while it waits for quota":                  {},
		"nothing is written when it is admitted":                       {conditions: []metav1.Condition{admitted}},
		"it gets ready":                                                {conditions: []metav1.Condition{admitted}, ready: true, want: &podsStarted},
		"it stays ready":                                               {conditions: []metav1.Condition{admitted, podsReady(podsStarted, 20)}, ready: true},
		"a pod is lost":                                                {conditions: []metav1.Condition{admitted, podsReady(podsStarted, 20)}, want: &waitsForRecovery},
		"a pod is lost in the second in which it was admitted":         {conditions: []metav1.Condition{admitted, podsReady(podsStarted, 10)}, want: &waitsForRecovery},
		"it waits on for its pod":                                      {conditions: []metav1.Condition{admitted, podsReady(waitsForRecovery, 20)}},
		"it recovers":                                                  {conditions: []metav1.Condition{admitted, podsReady(waitsForRecovery, 20)}, ready: true, want: &podsRecovered},
		"it stays recovered":                                           {conditions: []metav1.Condition{admitted, podsReady(podsRecovered, 20)}, ready: true},
		"a pod is lost once more":                                      {conditions: []metav1.Condition{admitted, podsReady(podsRecovered, 20)}, want: &waitsForRecovery},
		"it is being stopped":                                          {conditions: []metav1.Condition{admitted, evicted, podsReady(podsStarted, 20)}, want: &waitsForStart},
		"it is being stopped while its pods are still ready":           {conditions: []metav1.Condition{admitted, evicted, podsReady(podsStarted, 20)}, ready: true, want: &waitsForStart},
		"it is being stopped before it was ready":                      {conditions: []metav1.Condition{admitted, evicted}},
		"it has stopped":                                               {conditions: []metav1.Condition{evicted, podsReady(podsStarted, 20)}, want: &waitsForStart},
		"it has stopped while it waited for recovery":                  {conditions: []metav1.Condition{evicted, podsReady(waitsForRecovery, 20)}, want: &waitsForStart},
		"it has stopped, as was told":                                  {conditions: []metav1.Condition{evicted, podsReady(waitsForStart, 60)}},
		"it is admitted again before anybody told that it stops":       {conditions: []metav1.Condition{admitted, podsReady(podsStarted, 5)}, want: &waitsForStart},
		"it gets ready again":                                          {conditions: []metav1.Condition{admitted, podsReady(waitsForStart, 5)}, ready: true, want: &podsStarted},
		"it is admitted again after pods were left":                    {conditions: []metav1.Condition{admitted, podsReady(podsLeft, 10)}, want: &waitsForStart},
		"it is so, and gets ready at once":                             {conditions: []metav1.Condition{admitted, podsReady(podsLeft, 10)}, ready: true, want: &podsStarted},
		"what Kueue before 0.11 wrote":                                 {conditions: []metav1.Condition{admitted, condition(kueue.WorkloadPodsReady, metav1.ConditionFalse, "PodsReady", 5)}},
		"a pod is lost with its node, which Kueue is about to replace": {conditions: []metav1.Condition{admitted, podsReady(podsStarted, 20)}, unhealthy: []kueue.UnhealthyNode{{Name: "node-1"}}},
		"it recovers while Kueue is about to replace another node": {
			conditions: []metav1.Condition{admitted, podsReady(waitsForRecovery, 20)}, unhealthy: []kueue.UnhealthyNode{{Name: "node-1"}}, ready: true},
		"it is finished": {conditions: []metav1.Condition{admitted, finished, podsReady(podsStarted, 20)}},
	}, func(t *testing.T, tc row) {
		got := nextReadiness(&kueue.Workload{Status: kueue.WorkloadStatus{Conditions: tc.conditions, UnhealthyNodes: tc.unhealthy}}, tc.ready)
		expect.Same(t, "Unexpected readiness", tc.want, got, cmp.AllowUnexported(readiness{}))
	})
}

func TestReportIsWrittenByAnOldViewFromThenOn(t *testing.T) {
	// There is nothing to say while pods are not ready.
	for _, ready := range []bool{true, false} {
		wl := inttest.AdmittedOf("a")
		written := false
		c := kit.Writes(inttest.Fake(wl).Build(), func(kit.Write) error { written = true; return kit.ErrAnswered })
		r := Reporter{Client: c, Queues: queues.New(c, c, testenv.KueueDefaults(t)), Expectations: jobclient.NewExpectations(clock.RealClock{})}
		key := client.ObjectKey{Namespace: wl.Namespace, Name: "llm"}
		expect.Same(t, "It is reported", ready, expect.Must(r.Report(t.Context(), key, wl, ready))(t))
		expect.Same(t, "The view that it was written by is an old one", ready, r.Expectations.Outdated(key, []*kueue.Workload{wl}))
		expect.Same(t, "PodsReady is written", ready, written)
	}
}

func TestReportCountsAStartAndNoRecovery(t *testing.T) {
	for was, want := range map[string]float64{"": 1, kueue.WorkloadWaitForRecovery: 0} {
		wl := inttest.AdmittedOf("a", kit.Isnt(kueue.WorkloadPodsReady, was))
		wl.Status.Admission.ClusterQueue = kueue.ClusterQueueReference("was" + was)
		c := inttest.Fake(wl).WithStatusSubresource(wl).Build()
		r := Reporter{Client: c, Queues: queues.New(c, c, testenv.KueueDefaults(t)), Expectations: jobclient.NewExpectations(clock.RealClock{})}
		expect.Must(r.Report(t.Context(), client.ObjectKey{Namespace: wl.Namespace, Name: "llm"}, wl, true))(t)
		registry := prometheus.NewRegistry()
		registry.MustRegister(kueuelib.JobMetrics()...)
		expect.Same(t, "Unexpected number of times that it is counted as ready", want,
			inttest.Recorded(t, registry, "cluster_queue")["kueue_ready_wait_time_seconds was"+was])
	}
}
