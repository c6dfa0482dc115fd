// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/testenv"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/logging"
	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// said is what admins look for in a line.
type said struct {
	Msg, Reason        string
	TrainJob, Workload types.NamespacedName
}

// logged is a reconciler whose log is read.
type logged struct {
	*reconciler
	out bytes.Buffer
}

func (l *logged) look(t *testing.T) []said {
	t.Helper()
	l.out.Reset()
	req := jobRequest
	log := logging.ForController(logging.New(zap.WriteTo(&l.out)), "trainjob", "trainJob")(&req)
	_, err := (&reconciler{deps: l.deps}).Reconcile(ctrl.LoggerInto(t.Context(), log), req)
	// The fake client has no status of Workloads to patch.
	expect.NoError(t, client.IgnoreNotFound(err))
	expect.That(t, !strings.Contains(l.out.String(), "s3cret"), "The job's dependencies is in the log:\n%s", l.out.String())
	var lines []said
	for line := range strings.Lines(l.out.String()) {
		lines = append(lines, expect.FromJSON[said](t, line))
	}
	return lines
}

// A decision is logged once, when it is made, with the names that it is looked for by.
func TestDecisionsAreLogged(t *testing.T) {
	stored, js := suspendedJob()
	stored.Spec.Trainer = &trainer.Trainer{Env: []corev1.EnvVar{{Name: "TOKEN", Value: "s3cret"}}}
	r, _ := newReconciler(t, stored, js)
	r.deps.Defaults, r.deps.expectations = servedDefaults(t), testenv.LedSince(time.Now().Add(-trainerSilent/2))
	c, l := r.deps.client, &logged{reconciler: r}
	// Trainer and JobSet follow the TrainJob.
	follow := func(suspend bool) {
		js.Spec.Suspend = &suspend
		expect.NoError(t, c.Update(t.Context(), js))
		changeJob(t, r, func(job *trainjob.TrainJob) {
			apimeta.SetStatusCondition(&job.Status.Conditions, metav1.Condition{
				Type: trainer.TrainJobSuspended, Status: map[bool]metav1.ConditionStatus{true: "True", false: "False"}[suspend]})
		})
	}
	deactivated := func(wl *kueue.Workload) {
		wl.Status = kueue.WorkloadStatus{}
		kit.With(wl, kit.Deactivated, kit.Isnt(kueue.WorkloadQuotaReserved, kueue.WorkloadDeactivated))
	}
	var workload types.NamespacedName
	for _, step := range []struct {
		what   string
		change func()
		want   []said
	}{
		{what: "it comes to its queue without a gate", want: []said{{Msg: "Created the Workload of TrainJob", Reason: "CreatedWorkload"}, {Msg: "Set the admission gate"}}},
		{what: "it waits"},
		{what: "it is admitted", change: func() { changeWorkload(t, c, giveQuota) },
			want: []said{{Msg: "Saw the running Trainer read the patches"}, {Msg: "Started TrainJob", Reason: "Started"}}},
		{what: "it runs", change: func() { follow(false) }},
		{what: "it is preempted", change: func() { changeWorkload(t, c, preempted) }, want: []said{{Msg: "Stopped TrainJob", Reason: "Stopped"}}},
		{what: "it stops"},
		{what: "its pods are gone", change: func() { follow(true) }, want: []said{{Msg: "Set the admission gate"}, {Msg: "Found no pod left and let the quota go", Reason: "Preempted"}}},
		{what: "it is deactivated", change: func() { changeWorkload(t, c, deactivated) }, want: []said{{Msg: "Workload was deactivated", Reason: "WorkloadDeactivated"}}},
		{what: "it is complete", change: func() { changeJob(t, r, ended(trainer.TrainJobComplete)) },
			want: []said{{Msg: "Finished the Workload of TrainJob", Reason: "FinishedWorkload"}}},
	} {
		if step.change != nil {
			step.change()
		}
		got := l.look(t)
		for i := range step.want {
			step.want[i].TrainJob = jobKey
			// Only the next look knows of one that was made meanwhile.
			step.want[i].Workload = workload
		}
		workload = client.ObjectKeyFromObject(theWorkload(t, c))
		expect.Same(t, fmt.Sprintf("When %s, the log has", step.what), step.want, got)
	}
}

// Who stands aside says so of each TrainJob once.
func TestStandingAsideIsLogged(t *testing.T) {
	stored, _ := suspendedJob()
	r, _ := newReconciler(t, stored)
	l := &logged{reconciler: r}
	r.deps.inTree = testenv.InTree(t, true)
	want := []said{{Msg: "Stood aside from TrainJob for Kueue's in-tree integration", Reason: "InTreeActive", TrainJob: jobKey}}
	expect.Same(t, "The log has", want, l.look(t))
	expect.Same(t, "At the next look, the log has", nil, l.look(t))
}

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
		got := recorded(t, registry)
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
	measureWorkloads(recorder).Update(event.UpdateEvent{ObjectOld: wl, ObjectNew: wl})
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
