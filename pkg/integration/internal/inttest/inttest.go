// SPDX-License-Identifier: Apache-2.0

// Package inttest has what the tests of the integration's packages share.
package inttest

import (
	"context"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	configapi "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/config/kueueconfig"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/caches"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/podsets"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/serving"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// InTreeOff is the answer that Kueue's in-tree integration is not active.
func InTreeOff(tb testing.TB) *serving.InTree {
	tb.Helper()
	in := serving.NewInTree(nil, "", serving.NewTrainJobs(nil))
	if err := in.Observe(context.Background(), time.Now(), false, nil); err != nil {
		tb.Fatal(err)
	}
	return in
}

// Served returns a Trainer of a version.
func Served(tb testing.TB, version trainjob.TrainerVersion) *serving.Trainer {
	tb.Helper()
	trainer := serving.NewTrainer(serving.NewTrainJobs(nil))
	trainer.Set(context.Background(), version, nil)
	return trainer
}

// KueueDefaults are the settings of a Kueue that is told nothing.
func KueueDefaults(tb testing.TB) *kueueconfig.Follower {
	tb.Helper()
	settings, err := kueueconfig.Of(kueueconfig.Defaults(configapi.DefaultNamespace), kueueconfig.Overrides{})
	if err != nil {
		tb.Fatal(err)
	}
	return kueueconfig.Fixed(*settings)
}

// Metrics returns a Recorder that nobody reads.
func Metrics() *metrics.Recorder {
	return metrics.NewRecorder(prometheus.NewRegistry(), metrics.QueueLabels{})
}

// Scheme has all kinds that the integration reads and writes.
func Scheme(tb testing.TB) *runtime.Scheme {
	tb.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, kueue.AddToScheme, jobsetapi.AddToScheme, trainjob.AddToScheme} {
		if err := add(scheme); err != nil {
			tb.Fatal(err)
		}
	}
	return scheme
}

// Manifest returns a TrainJob in a queue, or in none, with a spec.
func Manifest(queue, spec string) string {
	return `{"apiVersion":"trainer.kubeflow.org/v1alpha1","kind":"TrainJob","metadata":{"name":"job","labels":{` + queue + `}},"spec":` + spec + `}`
}

// ByOwner adds the indexes of the manager's caches to a fake client.
func ByOwner(b *fake.ClientBuilder) *fake.ClientBuilder {
	if err := caches.SetupIndexes(context.Background(), builderIndexer{b}); err != nil {
		panic(err) // the builder returns no errors
	}
	return b
}

type builderIndexer struct {
	builder *fake.ClientBuilder
}

func (i builderIndexer) IndexField(_ context.Context, obj client.Object, field string, values client.IndexerFunc) error {
	i.builder.WithIndex(obj, field, values)
	return nil
}

// WorkloadOf makes a Workload of a TrainJob "llm", with quota or without.
func WorkloadOf(uid types.UID, admitted bool) *kueue.Workload {
	job := &trainjob.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "llm", UID: uid}}
	wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{
		Namespace: "team", Name: jobframework.GetWorkloadNameForOwnerWithGVK(job.Name, job.UID, trainjob.GVK),
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job, trainjob.GVK)},
	}}
	if admitted {
		wl.Status.Conditions = []metav1.Condition{
			{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue}, {Type: kueue.WorkloadAdmitted, Status: metav1.ConditionTrue},
		}
	}
	return wl
}

// Queued is the label of a TrainJob in queue q, as JSON; Gate is our entry at the gate of
// replicated job node.
const (
	Queued = `"kueue.x-k8s.io/queue-name":"q"`
	Gate   = `{"manager":"kueue.x-k8s.io/manager","trainingRuntimeSpec":{"template":{"spec":{"replicatedJobs":[{"name":"node","template":{"spec":{"template":{"metadata":{"labels":{"kueue-trainer.dev/gated":"true"}},"spec":{"schedulingGates":[{"name":"kueue-trainer.dev/admission"}]}}}}}]}}}}`
)

// Runtime returns a ClusterTrainingRuntime "torch" of one replicated job, "node".
func Runtime() *trainer.ClusterTrainingRuntime {
	rt := &trainer.ClusterTrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: "torch"}}
	rt.Spec.Template.Spec.ReplicatedJobs = []jobsetapi.ReplicatedJob{{Name: "node", Replicas: 1, Template: batchv1.JobTemplateSpec{
		Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "node", Image: "i"}}}}},
	}}}
	return rt
}

// Describer describes TrainJobs of those runtimes that c has.
func Describer(tb testing.TB, c client.Client) *podsets.Describer {
	tb.Helper()
	renderer, err := trainjob.NewRenderer(context.Background(), c.Scheme())
	if err != nil {
		tb.Fatal(err)
	}
	return &podsets.Describer{
		Runtimes: trainjob.NewRuntimes(c, c), Renderer: renderer, State: state.FromCache(c), Field: patch.Of(trainjob.Trainer23),
		Defaults: podsets.FixedDefaults(&podset.Defaults{}), Remembered: podsets.NewRemembered(),
		Recorder: jobevents.New(&events.FakeRecorder{}),
	}
}
