// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/podsets"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/queues"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/serving"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

func TestRead(t *testing.T) {
	job := &trainjob.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job", UID: "uid"}}
	var (
		overrides = map[string]string{"kueue-trainer.dev/manager": "kueue.x-k8s.io/manager"}
		gated     = jobSetShowing("gated", job, map[string]string{"kueue-trainer.dev/gated": "true"}, nil)
		placed    = jobSetShowing("placed", job, map[string]string{"kueue.x-k8s.io/podset": "node"}, nil)
		older     = jobSetShowing("older", job, map[string]string{"kueue.x-k8s.io/podset": "node"}, overrides)
		plain     = jobSetShowing("plain", job, map[string]string{"a": "b"}, nil)
		foreign   = jobSetShowing("foreign", nil, map[string]string{"kueue.x-k8s.io/podset": "node"}, nil)
		snapshot  = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job-runtime-snapshot",
			CreationTimestamp: metav1.Now(), OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job, trainjob.GVK)}}}
	)
	cases := map[string]struct {
		// served are the generations of the CRD, one after the other.
		served []trainjob.TrainerVersion
		// managedBy is Trainer where it is not said.
		managedBy  string
		objects    []client.Object
		wantUnread bool
		// wantLists is how often JobSets are looked at for two starts.
		wantLists int
	}{
		"a cluster without jobs":                              {served: []trainjob.TrainerVersion{trainjob.Trainer23}, wantLists: 1},
		"a manager that starts beside running jobs":           {served: []trainjob.TrainerVersion{trainjob.Trainer23}, objects: []client.Object{placed, plain}, wantLists: 1},
		"one that starts in the middle of an upgrade":         {served: []trainjob.TrainerVersion{trainjob.Trainer23}, objects: []client.Object{older, plain}, wantUnread: true, wantLists: 2},
		"one that starts with Trainer 2.1":                    {served: []trainjob.TrainerVersion{trainjob.Trainer21}, objects: []client.Object{older, plain}, wantLists: 1},
		"an upgrade of a cluster without jobs":                {served: []trainjob.TrainerVersion{trainjob.Trainer21, trainjob.Trainer23}, wantUnread: true, wantLists: 2},
		"an upgrade, and the older controller works on":       {served: []trainjob.TrainerVersion{trainjob.Trainer21, trainjob.Trainer22}, objects: []client.Object{older, plain}, wantUnread: true, wantLists: 2},
		"an upgrade, and a JobSet of another integration":     {served: []trainjob.TrainerVersion{trainjob.Trainer21, trainjob.Trainer23}, objects: []client.Object{foreign}, wantUnread: true, wantLists: 2},
		"an upgrade, and the newer controller gates a JobSet": {served: []trainjob.TrainerVersion{trainjob.Trainer21, trainjob.Trainer22}, objects: []client.Object{older, gated}, wantLists: 1},
		"an upgrade, and the newer controller has a snapshot": {served: []trainjob.TrainerVersion{trainjob.Trainer21, trainjob.Trainer23}, objects: []client.Object{older, snapshot}, wantLists: 1},
		"an upgrade by way of a CRD of no generation":         {served: []trainjob.TrainerVersion{trainjob.Trainer21, 0, trainjob.Trainer23}, wantUnread: true, wantLists: 2},
		"an upgrade that keeps the field":                     {served: []trainjob.TrainerVersion{trainjob.Trainer22, trainjob.Trainer23}, wantLists: 1},
		"an upgrade, and a job of another cluster":            {served: []trainjob.TrainerVersion{trainjob.Trainer21, trainjob.Trainer23}, managedBy: kueue.MultiKueueControllerName},
		"a CRD that was of no generation for a moment":        {served: []trainjob.TrainerVersion{trainjob.Trainer23, 0, trainjob.Trainer23}, wantLists: 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			lists := 0
			c := fake.NewClientBuilder().WithScheme(inttest.Scheme(t)).WithObjects(tc.objects...).WithInterceptorFuncs(interceptor.Funcs{
				List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
					lists++
					return c.List(ctx, list, opts...)
				},
			}).Build()
			served := serving.NewTrainer(serving.NewTrainJobs(nil))
			for _, generation := range tc.served {
				var reason error
				if generation == 0 {
					reason = errors.New("no CRD")
				}
				served.Set(t.Context(), generation, reason)
			}
			env, err := (&environment{client: c, state: state.FromCache(c), queues: queues.New(c, c, inttest.KueueDefaults(t)), trainer: served, Describer: &podsets.Describer{Runtimes: trainjob.NewRuntimes(c, c)}}).now()
			if err != nil {
				t.Fatal(err)
			}
			job := job.DeepCopy()
			job.Spec.ManagedBy = ptr.To(cmp.Or(tc.managedBy, trainjob.ControllerName))
			for range 2 {
				if err := env.checkRollout(t.Context(), job); errors.Is(err, serving.ErrRollingOut) != tc.wantUnread || err != nil && !tc.wantUnread {
					t.Errorf("read returned %v, want serving.ErrRollingOut: %t", err, tc.wantUnread)
				}
			}
			if lists != tc.wantLists {
				t.Errorf("Looked at the JobSets %d times, want %d", lists, tc.wantLists)
			}
		})
	}
}

// jobSetShowing returns the JobSet of a TrainJob, or of nobody, whose pods have labels and annotations.
func jobSetShowing(name string, job *trainjob.TrainJob, labels, annotations map[string]string) *jobsetapi.JobSet {
	rj := jobsetapi.ReplicatedJob{Name: "node"}
	rj.Template.Spec.Template.Labels, rj.Template.Spec.Template.Annotations = labels, annotations
	js := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	js.Spec.ReplicatedJobs = []jobsetapi.ReplicatedJob{rj}
	if job != nil {
		js.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(job, trainjob.GVK)}
	}
	return js
}

func TestAwaitReading(t *testing.T) {
	long, now := time.Now().Add(-time.Minute), time.Now()
	cases := map[string]struct {
		// made and written are when the JobSet was made and we wrote the job.
		made, written time.Time
		volumes       bool
		wantJobSet    string
		wantEvents    []string
	}{
		"a JobSet that was made just now":           {made: now, written: long, wantJobSet: "suspended", wantEvents: []string{jobevents.ReasonTrainerBehind}},
		"a job that was written just now":           {made: long, written: now, wantJobSet: "suspended", wantEvents: []string{jobevents.ReasonTrainerBehind}},
		"a JobSet that stays as it is":              {made: long, written: long, wantJobSet: "gone", wantEvents: []string{jobevents.ReasonTrainerBehind, jobevents.ReasonJobSetOutdated}},
		"one that would take volume claims with it": {made: long, written: long, volumes: true, wantJobSet: "suspended", wantEvents: []string{jobevents.ReasonTrainerBehind, jobevents.ReasonJobSetOutdated}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			stored, js := disagreeing(true, true, true, long)
			js.CreationTimestamp = metav1.NewTime(tc.made)
			if tc.volumes {
				js.Spec.VolumeClaimPolicies = []jobsetapi.VolumeClaimPolicy{{}}
			}
			recorder := events.NewFakeRecorder(4)
			served := serving.NewTrainer(serving.NewTrainJobs(nil))
			served.Set(t.Context(), trainjob.Trainer22, nil)
			c := inttest.ByOwner(fake.NewClientBuilder().WithScheme(inttest.Scheme(t)).WithObjects(stored, js)).Build()
			env, err := (&environment{client: c, state: state.FromCache(c), queues: queues.New(c, c, inttest.KueueDefaults(t)), trainer: served, Describer: &podsets.Describer{Runtimes: trainjob.NewRuntimes(c, c), Recorder: jobevents.New(recorder)},
				expectations: ledSince(tc.written), memory: &memory{}, starts: newStarts(time.Hour)}).now()
			if err != nil {
				t.Fatal(err)
			}
			if err := (&attempt{env: env}).awaitRollout(t.Context(), &job{TrainJob: *stored, env: env}); err != nil {
				t.Fatal(err)
			}
			if got := jobSetState(t, c, js); got != tc.wantJobSet {
				t.Errorf("The JobSet is %s, want %s", got, tc.wantJobSet)
			}
			close(recorder.Events)
			var got []string
			for event := range recorder.Events {
				got = append(got, strings.Fields(event)[1])
			}
			if diff := gocmp.Diff(tc.wantEvents, got); diff != "" {
				t.Errorf("Unexpected events (-want,+got):\n%s", diff)
			}
		})
	}
}
