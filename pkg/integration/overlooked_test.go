// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/watches"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/pkg/webhookconfig"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// Whatever the webhooks were asked about when a TrainJob was made, it gets the queue of its namespace.
func TestTakeOverlooked(t *testing.T) {
	before, since, later := time.Unix(1000, 0), time.Unix(2000, 0), time.Unix(3000, 0)
	const told = "Normal QueuedLate Put into LocalQueue default, which was there when the TrainJob was made without a queue"
	tests := map[string]struct {
		labels map[string]string
		// queue is the LocalQueue that is there since a time, webhooks are.
		queue           string
		made, installed time.Time
		selector        *metav1.LabelSelector
		condition       string
		want            string
	}{
		"made after the queue":                       {queue: "default", made: later, want: "default"},
		"with labels of its own":                     {queue: "default", made: later, labels: map[string]string{"app": "llm"}, want: "default"},
		"in the second of the queue":                 {queue: "default", made: since, want: "default"},
		"made before the queue":                      {queue: "default", made: before},
		"made before the webhooks were there":        {queue: "default", made: since, installed: later},
		"a queue of another name":                    {queue: "gpus", made: later},
		"it names a queue":                           {queue: "default", made: later, labels: queueLabel, want: "q"},
		"the webhooks are not for its namespace":     {queue: "default", made: later, selector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}},
		"an admin's condition may have left it out":  {queue: "default", made: later, condition: "mine"},
		"the webhooks are asked about queued ones":   {queue: "default", made: later, condition: "queued", want: "default"},
		"the webhooks are not asked about their own": {queue: "default", made: later, condition: "not-own", want: "default"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			stored, _ := disagreeing(false, false, false, time.Now())
			stored.Labels, stored.CreationTimestamp = tc.labels, metav1.NewTime(tc.made)
			queue := kit.LocalQueue("ns", tc.queue, "gpus")
			queue.CreationTimestamp = metav1.NewTime(since)
			webhooks := &admissionregistrationv1.MutatingWebhookConfiguration{
				ObjectMeta: metav1.ObjectMeta{Name: webhookconfig.Installed.Mutating, CreationTimestamp: metav1.NewTime(tc.installed)},
				Webhooks:   []admissionregistrationv1.MutatingWebhook{{NamespaceSelector: tc.selector, MatchConditions: []admissionregistrationv1.MatchCondition{{Name: "not-deleting"}}}},
			}
			if tc.condition != "" {
				webhooks.Webhooks[0].MatchConditions = append(webhooks.Webhooks[0].MatchConditions, admissionregistrationv1.MatchCondition{Name: tc.condition})
			}
			r, recorder := newReconciler(t, stored, queue, webhooks)
			got := takeOverlooked(t.Context(), jobOf(t, r, storedJob(t, r)))
			expect.NoError(t, got.err)
			changed := tc.want != "" && tc.want != tc.labels[kit.QueueLabel]
			expect.Same(t, "It was taken", changed, got.done)
			stored = storedJob(t, r)
			expect.Same(t, "Unexpected queue", tc.want, stored.Labels[kit.QueueLabel])
			expect.Same(t, "Its own label", tc.labels["app"], stored.Labels["app"])
			if changed {
				expect.Same(t, "Unexpected events", []string{told}, eventsSoFar(recorder, ""))
			}
		})
	}
}

// MultiKueue would reject it, and a job that runs would be stopped for that.
func TestOverlookedJobOfThisClusterStaysOutOfMultiKueue(t *testing.T) {
	stored, _ := disagreeing(false, false, false, time.Now())
	stored.Labels, stored.CreationTimestamp = nil, metav1.NewTime(time.Unix(3000, 0))
	webhooks := &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: webhookconfig.Installed.Mutating},
		Webhooks:   []admissionregistrationv1.MutatingWebhook{{MatchConditions: []admissionregistrationv1.MatchCondition{{Name: "not-deleting"}}}},
	}
	behind := inttest.ClusterQueue("remote")
	r, recorder := newReconciler(t, stored, kit.LocalQueue("ns", "default", behind.Name), behind, inttest.Check("remote", kueue.MultiKueueControllerName), webhooks)
	got := takeOverlooked(t.Context(), jobOf(t, r, storedJob(t, r)))
	expect.That(t, got == result{}, "takeOverlooked() = %+v", got)
	expect.Same(t, "Unexpected queue", "", storedJob(t, r).Labels[kit.QueueLabel])
	wantTold(t, eventsSoFar(recorder, ""), "Warning QueuedLate not put into LocalQueue default: no other cluster may run the TrainJob")
}

// The queue may be seen after the TrainJobs that are to get it.
func TestUnqueuedOf(t *testing.T) {
	job := func(namespace, name string, labels map[string]string, status ...string) *trainjob.TrainJob {
		j := &trainjob.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}}
		for _, s := range status {
			j.Status.Conditions = append(j.Status.Conditions, inttest.True(s, ""))
		}
		return j
	}
	m := watches.Mapper{Cached: inttest.Fake(job("a", "unqueued", nil), job("a", "queued", queueLabel), job("a", "over", nil, "Complete"), job("b", "elsewhere", nil)).Build()}
	queue := kit.LocalQueue("a", "default", "gpus")
	var got []string
	for _, request := range m.UnqueuedOf(t.Context(), queue) {
		got = append(got, request.String())
	}
	expect.Same(t, "Unexpected TrainJobs", []string{"a/unqueued"}, got)

	passes := watches.MadeDefault()
	expect.That(t, passes.Create(event.CreateEvent{Object: queue}) && !passes.Create(event.CreateEvent{Object: kit.LocalQueue("a", "gpus", "gpus")}) &&
		!passes.Update(event.UpdateEvent{ObjectOld: queue, ObjectNew: queue}), "other events pass than the making of a LocalQueue default")
}
