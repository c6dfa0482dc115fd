// SPDX-License-Identifier: Apache-2.0

package jobmetrics

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"
	"sigs.k8s.io/controller-runtime/pkg/event"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestFollowQueues(t *testing.T) {
	queues := &informertest.FakeInformers{Scheme: inttest.Scheme}
	teams := map[string]string{}
	expect.NoError(t, followQueues(t.Context(), queues, func(queue client.Object) { teams[queue.GetName()] = queue.GetLabels()["team"] }, nil))
	queue := func(name, team string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Labels: map[string]string{"team": team}}
	}
	informerOf(t, queues, &kueue.LocalQueue{}).Add(&kueue.LocalQueue{ObjectMeta: queue("local", "ocr")})
	clusterQueues := informerOf(t, queues, &kueue.ClusterQueue{})
	clusterQueues.Add(&kueue.ClusterQueue{ObjectMeta: queue("gpus", "vision")})
	clusterQueues.Add(&kueue.ClusterQueue{ObjectMeta: queue("cpus", "vision")})
	clusterQueues.Update(&kueue.ClusterQueue{ObjectMeta: queue("cpus", "vision")}, &kueue.ClusterQueue{ObjectMeta: queue("cpus", "language")})
	expect.Same(t, "Unexpected labels of queues", map[string]string{"local": "ocr", "gpus": "vision", "cpus": "language"}, teams)
}

func TestForgetQueues(t *testing.T) {
	registry := prometheus.NewRegistry()
	recorder := metrics.NewRecorder(registry, metrics.QueueLabels{LocalQueues: true})
	queues := &informertest.FakeInformers{Scheme: inttest.Scheme}
	expect.NoError(t, followQueues(t.Context(), queues, func(client.Object) {}, recorder))
	cached := inttest.Fake(kit.LocalQueue("ocr", "q", "gpus"), kit.LocalQueue("ocr", "r", "gpus"), kit.LocalQueue("vision", "q", "gpus"), kit.LocalQueue("vision", "s", "cpus")).Build()
	recorder.There = isThere(t.Context(), cached)
	for _, queue := range []metrics.Queue{
		{ClusterQueue: "gpus", Namespace: "ocr", LocalQueue: "q"}, {ClusterQueue: "gpus", Namespace: "ocr", LocalQueue: "r"},
		{ClusterQueue: "gpus", Namespace: "vision", LocalQueue: "q"}, {ClusterQueue: "cpus", Namespace: "vision", LocalQueue: "s"},
	} {
		recorder.Started(queue, metrics.StartFirst)
		recorder.StartedAfter(queue, time.Second)
		recorder.Ready(queue, time.Second)
		recorder.Runs(queue)
		recorder.Ended(queue, time.Hour)
		recorder.Gone(queue, time.Second)
		recorder.Stopped(queue, metrics.StopByUser)
	}
	local, cluster := informerOf(t, queues, &kueue.LocalQueue{}), informerOf(t, queues, &kueue.ClusterQueue{})
	wants := func(when string, left float64) {
		t.Helper()
		got := inttest.Counted(t, registry)
		want := map[string]float64{
			"kueue_trainer_starts_total first": left, "kueue_trainer_stops_total SuspendedByUser": left,
			"kueue_trainer_admitted_until_started_seconds": left, "kueue_trainer_started_until_ready_seconds": left,
			"kueue_trainer_evicted_until_stopped_seconds": left, "kueue_trainer_admitted_until_ended_seconds": left,
		}
		expect.Same(t, when, want, got)
	}
	wants("Nothing is gone", 4)
	local.Update(&kueue.LocalQueue{}, &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: "ocr", Name: "q"}})
	wants("A LocalQueue changed", 4)
	expect.NoError(t, cached.Delete(t.Context(), kit.LocalQueue("ocr", "q", "gpus")))
	local.Delete(&kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: "ocr", Name: "q"}})
	wants("A LocalQueue is gone", 3)
	cluster.Delete(&kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "cpus"}})
	wants("A ClusterQueue is gone", 2)
	// Workloads outlive the LocalQueue of a namespace that is deleted.
	wl := inttest.AdmittedOf("uid", func(wl *kueue.Workload) { wl.Namespace, wl.Spec.QueueName = "ocr", "q" })
	OfWorkloads(recorder).Update(event.UpdateEvent{ObjectOld: wl, ObjectNew: wl})
	recorder.Stopped(metrics.Queue{Namespace: "ocr"}, metrics.StopByUser)
	var back []string
	for name := range inttest.Recorded(t, registry, metrics.LocalQueue, metrics.Namespace) {
		if strings.HasSuffix(name, " ocr") && !strings.HasSuffix(name, " r ocr") {
			back = append(back, name)
		}
	}
	expect.Same(t, "Series that nothing drops", nil, back)
}

// Kueue's metrics of this process are those that Kueue itself drops.
func TestForgetQueuesInKueuesMetrics(t *testing.T) {
	queues := &informertest.FakeInformers{Scheme: inttest.Scheme}
	expect.NoError(t, followQueues(t.Context(), queues, func(client.Object) {}, metrics.NewRecorder(prometheus.NewRegistry(), metrics.QueueLabels{})))
	wl := inttest.AdmittedOf("uid")
	wl.Spec.QueueName, wl.Status.Admission.ClusterQueue = "short-lived", "gone"
	kueuelib.ObserveReady(wl, true, nil)
	registry := prometheus.NewRegistry()
	registry.MustRegister(kueuelib.JobMetrics()...)
	count := func() int { return expect.Must(testutil.GatherAndCount(registry))(t) }
	before := count()
	informerOf(t, queues, &kueue.LocalQueue{}).Delete(&kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: wl.Namespace, Name: "short-lived"}})
	expect.Same(t, "Series that go with a LocalQueue", 2, before-count())
	informerOf(t, queues, &kueue.ClusterQueue{}).Delete(&kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "gone"}})
	expect.Same(t, "Series that go with its ClusterQueue, too", 4, before-count())
}

func informerOf(t *testing.T, queues *informertest.FakeInformers, obj client.Object) *controllertest.FakeInformer {
	t.Helper()
	return expect.Must(queues.FakeInformerFor(t.Context(), obj))(t)
}
