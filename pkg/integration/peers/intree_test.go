// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kueue-trainer/kueue-trainer/pkg/config/kueueconfig"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// inTreeOn returns the look for the in-tree integration on an API server whose webhooks
// are answer, with two runtimes, "a" and "b", and objects.
func inTreeOn(t *testing.T, answer func(*trainjob.TrainJob) error, objects ...client.Object) *InTree {
	t.Helper()
	for _, name := range []string{"a", "b"} {
		objects = append(objects, &trainer.ClusterTrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	c := inttest.Fake(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			options := (&client.CreateOptions{}).ApplyOptions(opts)
			expect.That(t, len(options.DryRun) != 0, "The probe must be a dry run")
			return answer(obj.(*trainjob.TrainJob))
		},
	}).Build()
	return NewInTree(c, "kueue-trainer-system", kueueconfig.Fixed(kueueconfig.Settings{}), NewTrainJobs(nil))
}

func TestInTreeProbe(t *testing.T) {
	refused := forbidden("not with this runtime")
	away := apierrors.NewInternalError(errors.New(`failed calling webhook "queued-trainjobs-need-kueue-trainer-running.kueue-trainer.dev"`))
	nothing := func(*trainjob.TrainJob) error { return nil }
	namespace := []client.Object{kit.Namespace("kueue-trainer-system")}
	suspendAll := func(job *trainjob.TrainJob) error {
		job.Spec.Suspend = new(true)
		return nil
	}
	ofA := func(job *trainjob.TrainJob) bool { return job.Spec.RuntimeRef.Name == "a" }
	ofTheCluster := func(job *trainjob.TrainJob) bool {
		return *job.Spec.RuntimeRef.Kind == trainer.ClusterTrainingRuntimeKind
	}
	unqueued := func(job *trainjob.TrainJob) bool { return job.Labels[kit.QueueLabel] == "" }
	refusing := func(err error, what func(*trainjob.TrainJob) bool, otherwise func(*trainjob.TrainJob) error) func(*trainjob.TrainJob) error {
		return func(job *trainjob.TrainJob) error {
			if what(job) {
				return err
			}
			return otherwise(job)
		}
	}
	suspend, listed := refusing(nil, unqueued, suspendAll), kueueconfig.Settings{InTree: true}
	type row struct {
		answer func(*trainjob.TrainJob) error
		own    []client.Object
		kueue  kueueconfig.Settings
		// unknown has Kueue's configuration unread, bare leaves the runtimes of the cluster out.
		unknown, bare bool
		// ahead has the manager have started between an edit of Kueue's configuration and the restart of Kueue.
		ahead   bool
		want    bool
		wantErr error
	}
	expect.Rows(t, map[string]row{
		"a policy suspends every TrainJob, and Kueue's configuration lists the in-tree integration": {answer: suspendAll, kueue: listed, wantErr: errSuspendsAll},
		"a policy suspends every TrainJob":                                                             {answer: suspendAll},
		"a policy suspends every TrainJob in a queue":                                                  {answer: suspend},
		"a policy may suspend it, where Kueue has yet to be restarted without the in-tree integration": {answer: suspend, ahead: true, want: true},
		"it may be Kueue's configuration, which cannot be read":                                        {answer: suspendAll, unknown: true, want: true},
		"the in-tree webhook gives what is in no queue the default": {answer: func(job *trainjob.TrainJob) error {
			job.Labels = map[string]string{"kueue.x-k8s.io/queue-name": "default"}
			return suspendAll(job)
		}, kueue: listed, want: true},
		"the in-tree webhook makes an entry": {answer: func(job *trainjob.TrainJob) error {
			job.Spec.RuntimePatches = []trainjob.RuntimePatch{trainjob.NewRuntimePatch(&trainer.RuntimePatch{Manager: patch.Manager})}
			return suspendAll(job)
		}, want: true},
		"the in-tree webhook suspends all, as Kueue's configuration says": {answer: suspendAll, kueue: kueueconfig.Settings{InTree: true, ManageJobsWithoutQueueName: true}, want: true},
		"nobody suspends it": {answer: nothing},
		"nobody suspends it in a namespace that Kueue does not manage, and Kueue's configuration lists the in-tree integration": {answer: nothing,
			own: namespace, kueue: kueueconfig.Settings{InTree: true}, want: true},
		"nobody suspends it in a namespace that Kueue manages, and Kueue has yet to be restarted with it": {answer: nothing, own: namespace,
			kueue: kueueconfig.Settings{InTree: true, ManagedJobsNamespaceSelector: &metav1.LabelSelector{}}},
		"the in-tree webhook suspends it":                                           {answer: suspend, kueue: listed, want: true},
		"a runtime that plain TrainJobs cannot use decides nothing":                 {answer: refusing(refused, ofA, suspend), kueue: listed, want: true},
		"a webhook that is away decides nothing, whatever other runtimes there are": {answer: refusing(away, ofA, nothing), wantErr: away},
		"where Trainer takes no ClusterTrainingRuntime, a runtime of the manager's namespace serves": {answer: refusing(refused, ofTheCluster, suspend), kueue: listed, want: true,
			own: []client.Object{&trainer.TrainingRuntime{ObjectMeta: metav1.ObjectMeta{Namespace: "kueue-trainer-system", Name: "own"}}}},
		"without a runtime to ask with, Kueue's configuration says that it is on":      {bare: true, kueue: kueueconfig.Settings{InTree: true}, want: true},
		"without a runtime to ask with, Kueue's configuration says that it is off":     {bare: true},
		"without a runtime to ask with, nor Kueue's configuration, there is no answer": {bare: true, unknown: true, wantErr: trainjob.ErrNoRuntime},
		"without a runtime to ask with, nor one that Kueue goes by already":            {bare: true, ahead: true, wantErr: trainjob.ErrNoRuntime},
		"all refused is no answer": {answer: func(*trainjob.TrainJob) error { return refused }, wantErr: refused},
	}, func(t *testing.T, tc row) {
		in := inTreeOn(t, tc.answer, tc.own...)
		in.kueue = kueueconfig.Fixed(tc.kueue)
		if tc.unknown {
			in.kueue = kueueconfig.NewFollower(nil, kueueconfig.ConfigMap{}, kueueconfig.Overrides{})
		}
		if tc.ahead {
			where, edited := kueueconfig.ConfigMap{Namespace: "kueue-system", Name: "kueue-manager-config", Key: "file"}, time.Now()
			in.kueue = kueueconfig.NewFollower(inttest.Fake(kit.KueuePod(where.Namespace, where.Name, edited.Add(-time.Hour)), &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: where.Namespace, Name: where.Name, CreationTimestamp: metav1.NewTime(edited)},
				Data:       map[string]string{where.Key: "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"},
			}).Build(), where, kueueconfig.Overrides{})
			in.kueue.Read(t.Context())
		}
		if tc.bare {
			expect.NoError(t, in.client.DeleteAllOf(t.Context(), &trainer.ClusterTrainingRuntime{}))
		}
		got, err := in.probe(context.Background())
		expect.Need(t, errors.Is(err, tc.wantErr) && (tc.wantErr != nil || err == nil), "Unexpected error: %v", err)
		expect.Same(t, "Unexpected probe", tc.want, got)
	})
}

// forbidden is what the API server answers to a TrainJob that may not be created.
func forbidden(why string) error {
	return apierrors.NewForbidden(schema.GroupResource{Group: trainjob.GVK.Group, Resource: "trainjobs"}, "dry-run", errors.New(why))
}

// The looks of a start without an answer, by the times that the view asks for.
func TestInTreeWaits(t *testing.T) {
	start := time.Unix(0, 0)
	now, view := start, inTreeView{}
	var waits []time.Duration
	for now.Sub(start) < 2*time.Minute {
		view = view.unheard(errors.New("no answer"), now)
		wait := view.wait(now)
		waits, now = append(waits, wait.Truncate(100*time.Millisecond)), now.Add(wait)
	}
	ms := time.Millisecond
	want := append([]time.Duration{200 * ms, 400 * ms, 800 * ms, 1600 * ms}, slices.Repeat([]time.Duration{2 * time.Second}, 14)...)
	expect.Same(t, "Unexpected waits", append(want, slices.Repeat([]time.Duration{inTreeEvery}, 3)...), waits)
	expect.Same(t, "It stands aside: unexpected wait", inTreeRetry, view.heard(true).wait(now))
	expect.Same(t, "All is well: unexpected wait", inTreeEvery, view.heard(false).wait(now))
}

func TestInTreeAnswerHolds(t *testing.T) {
	start := time.Unix(0, 0)
	refused := errors.New("refused")
	type row struct {
		view       inTreeView
		at         time.Duration
		want       string
		wantSilent bool
	}
	expect.Rows(t, map[string]row{
		"nobody has looked":                  {},
		"no answer yet":                      {view: inTreeView{}.unheard(refused, start), at: 29 * time.Second},
		"no answer for long":                 {view: inTreeView{}.unheard(refused, start), at: 30 * time.Second, wantSilent: true},
		"the time counts from the first one": {view: inTreeView{}.unheard(refused, start).unheard(refused, start.Add(time.Minute)), at: 30 * time.Second, wantSilent: true},
		"off":                                {view: inTreeView{}.heard(false), at: time.Hour, want: metrics.InTreeOff},
		"an answer ends the silence":         {view: inTreeView{}.unheard(refused, start).heard(true), at: time.Hour, want: metrics.InTreeActive},
		"an answer holds although none has come since":   {view: inTreeView{}.heard(false).unheard(refused, start), at: time.Second, want: metrics.InTreeOff},
		"but people hear that none has come for so long": {view: inTreeView{}.heard(false).unheard(refused, start), at: time.Minute, want: metrics.InTreeOff, wantSilent: true},
	}, func(t *testing.T, tc row) {
		expect.That(t, tc.view.answer == tc.want && tc.view.silent(start.Add(tc.at)) == tc.wantSilent,
			"answer %q, silent %v; want %q, %v", tc.view.answer, tc.view.silent(start.Add(tc.at)), tc.want, tc.wantSilent)
	})
}

func TestInTreeUnknownRemedy(t *testing.T) {
	expect.Answers(t, func(in error) string { return inTreeUnknownRemedy("ours", fmt.Errorf("asking: %w", in)) }, map[string]expect.Row[error, string]{
		"no runtime": {In: trainjob.ErrNoRuntime, Want: "create a ClusterTrainingRuntime, or a TrainingRuntime in namespace ours"},
		"a webhook that cannot be reached": {In: apierrors.NewInternalError(errors.New(`failed calling webhook "mtrainjob.kb.io": no endpoints available for service "kueue-webhook-service"`)),
			Want: "look at the Service and the pods behind webhook mtrainjob.kb.io"},
		"a webhook that refuses": {In: forbidden(`admission webhook "policy.example.com" denied the request: no`),
			Want: "let webhook policy.example.com accept such a TrainJob in namespace ours, or add a ClusterTrainingRuntime that it accepts"},
		"a quota": {In: forbidden("exceeded quota: no-trainjobs, requested: count/trainjobs=1"), Want: "take TrainJobs out of the ResourceQuotas of namespace ours"},
		"no permission": {In: forbidden(`User "us" cannot create resource "trainjobs"`),
			Want: "let the manager's ServiceAccount create trainjobs in namespace ours, as config/rbac has it, and let no policy refuse that"},
		"anything else": {In: context.DeadlineExceeded, Want: "look at the API server's answer"},
	})
}

// Readiness and metrics tell of what is unknown for long. One look without an answer says nothing new: two integrations would
// fight.
func TestInTreeState(t *testing.T) {
	away, long := errors.New("away"), time.Now().Add(-time.Hour)
	in := NewInTree(nil, "", nil, NewTrainJobs(nil))
	expect.Same(t, "Before the first look", metrics.InTreeUnknown, in.State())
	expect.NoError(t, in.Check(nil)) // The look needs webhooks, and so a pod that is ready.
	for _, step := range []struct {
		at     time.Time
		active bool
		err    error
		want   string
	}{{time.Now(), false, nil, metrics.InTreeOff}, {long, false, away, metrics.InTreeUnknown}, {time.Now(), true, nil, metrics.InTreeActive}, {long, false, away, metrics.InTreeActive}} {
		expect.NoError(t, in.Observe(t.Context(), step.at, step.active, step.err))
		expect.Same(t, "Unexpected state", step.want, in.State())
		expect.Same(t, "It is ready", step.want != metrics.InTreeActive, in.Check(nil) == nil)
		expect.That(t, !in.Unknown(), "The last answer is forgotten")
	}
}
