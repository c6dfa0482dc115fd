// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"cmp"
	"strings"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/podsets"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/queues"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

func TestCorrectDrift(t *testing.T) {
	long, now := time.Now().Add(-time.Minute), time.Now()
	volumes := func(retention *jobsetapi.VolumeRetentionPolicy) func(*trainjob.TrainJob, *jobsetapi.JobSet) {
		return func(_ *trainjob.TrainJob, js *jobsetapi.JobSet) {
			js.Spec.VolumeClaimPolicies = []jobsetapi.VolumeClaimPolicy{{RetentionPolicy: retention}}
		}
	}
	cases := map[string]struct {
		// suspended: the TrainJob, what Trainer says of it, the JobSet.
		job, said, jobSet bool
		since             time.Time
		change            func(*trainjob.TrainJob, *jobsetapi.JobSet)
		// stale makes our view of the TrainJob an old one.
		stale bool
		// served is Trainer 2.2 where it is not said.
		served trainjob.TrainerVersion
		// done adds a child Job that has succeeded.
		done bool

		wantWait   bool
		wantJobSet string
		// wantEvent is a part of what the user is told; empty where that is nothing.
		wantEvent string
	}{
		"all agree":                                            {job: true, said: true, jobSet: true, since: long, wantJobSet: "suspended"},
		"Trainer has not seen the stop":                        {job: true, said: false, jobSet: false, since: long, wantJobSet: "runs"},
		"a stop that may be on its way":                        {job: true, said: true, jobSet: false, since: now, wantWait: true, wantJobSet: "runs"},
		"a stop that Trainer could not do":                     {job: true, said: true, jobSet: false, since: long, wantJobSet: "suspended", wantEvent: "was suspended for Trainer"},
		"the same with Trainer 2.3, whose snapshot was edited": {job: true, said: true, jobSet: false, since: long, served: trainjob.Trainer23, wantJobSet: "suspended", wantEvent: "was suspended for Trainer"},
		"the same in an old view":                              {job: true, said: true, jobSet: false, since: long, stale: true, wantWait: true, wantJobSet: "runs"},
		"Trainer has not seen the start":                       {job: false, said: true, jobSet: true, since: long, wantJobSet: "suspended"},
		"a start that may be on its way":                       {job: false, said: false, jobSet: true, since: now, wantWait: true, wantJobSet: "suspended"},
		"a start that Trainer could not do":                    {job: false, said: false, jobSet: true, since: long, wantJobSet: "gone", wantEvent: "made again"},
		"the same with Trainer 2.3, which tries again":         {job: false, said: false, jobSet: true, since: long, served: trainjob.Trainer23, wantJobSet: "suspended"},
		"one whose downloads are done":                         {job: false, said: false, jobSet: true, since: long, done: true, wantJobSet: "suspended", wantEvent: "what its Jobs have done"},
		"one that somebody suspended later": {job: false, said: false, jobSet: true, since: long, change: func(_ *trainjob.TrainJob, js *jobsetapi.JobSet) {
			js.Status.Conditions[0].LastTransitionTime = metav1.NewTime(now)
		}, wantJobSet: "suspended"},
		"one that would delete volumes":   {job: false, said: false, jobSet: true, since: long, change: volumes(nil), wantJobSet: "suspended", wantEvent: "its volume claims"},
		"one that keeps its volumes":      {job: false, said: false, jobSet: true, since: long, change: volumes(&jobsetapi.VolumeRetentionPolicy{WhenDeleted: ptr.To(jobsetapi.RetentionPolicyRetain)}), wantJobSet: "gone", wantEvent: "made again"},
		"a job that is not Kueue's":       {job: true, said: true, jobSet: false, since: long, change: func(t *trainjob.TrainJob, _ *jobsetapi.JobSet) { t.Labels = nil }, wantJobSet: "runs"},
		"the JobSet of a former TrainJob": {job: true, said: true, jobSet: false, since: long, change: func(_ *trainjob.TrainJob, js *jobsetapi.JobSet) { js.OwnerReferences[0].UID = "former" }, wantJobSet: "runs"},
		"a finished job is beyond stop or start": {job: true, said: true, jobSet: false, since: long, change: func(t *trainjob.TrainJob, _ *jobsetapi.JobSet) {
			t.Status.Conditions = append(t.Status.Conditions, metav1.Condition{Type: trainer.TrainJobComplete, Status: metav1.ConditionTrue})
		}, wantJobSet: "runs"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			stored, js := disagreeing(tc.job, tc.said, tc.jobSet, tc.since)
			if tc.change != nil {
				tc.change(stored, js)
			}
			c := inttest.ByOwner(fake.NewClientBuilder().WithScheme(inttest.Scheme(t)).
				WithObjects(append(children(js, tc.done), stored, js, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}})...)).Build()
			j := &job{}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(stored), &j.TrainJob); err != nil {
				t.Fatal(err)
			}
			if tc.stale {
				j.ResourceVersion = "1"
			}
			runtimes := trainjob.NewRuntimes(c, c)
			runtimes.Served = cmp.Or(tc.served, trainjob.Trainer22)
			recorder := events.NewFakeRecorder(1)
			r := &attempt{env: &environment{client: c, state: state.FromCache(c), live: c, queues: queues.New(c, c, inttest.KueueDefaults(t)), Describer: &podsets.Describer{Runtimes: runtimes, Field: patch.Of(runtimes.Served), State: state.FromCache(c), Recorder: jobevents.New(recorder)},
				expectations: inttest.LedSince(time.Time{}), memory: &memory{}, starts: newStarts(time.Hour)}}
			j.env = r.env
			wait, err := r.correctDrift(t.Context(), j)
			if err != nil || (wait > 0) != tc.wantWait {
				t.Errorf("correctDrift returned %s, %v; want to wait: %t", wait, err, tc.wantWait)
			}
			if got := jobSetState(t, c, js); got != tc.wantJobSet {
				t.Errorf("The JobSet is %s, want %s", got, tc.wantJobSet)
			}
			close(recorder.Events)
			if told := <-recorder.Events; !strings.Contains(told, tc.wantEvent) || (told == "") != (tc.wantEvent == "") {
				t.Errorf("The user is told %q, want %q in it", told, tc.wantEvent)
			}
		})
	}
}

// A snapshot that a user deleted is taken again, of the runtime as it is then.
func TestRestartOfAnotherRuntimeQueuesAgain(t *testing.T) {
	cases := map[string]struct {
		admitted              int32
		wantSuspended         bool
		wantJobSet, wantEvent string
	}{
		"it asks for what the job was admitted for": {admitted: 1, wantJobSet: "gone", wantEvent: jobevents.ReasonJobSetOutdated},
		"it asks for another number of pods":        {admitted: 8, wantSuspended: true, wantJobSet: "suspended", wantEvent: jobevents.ReasonRequeued},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			env := newEnvironmentOn(t)
			stored, js := disagreeing(false, false, true, time.Now().Add(-time.Minute))
			stored.Spec.RuntimeRef.Name = "torch"
			recorder := events.NewFakeRecorder(1)
			env.Recorder, env.Field = jobevents.New(recorder), patch.Of(trainjob.Trainer22)
			env.Runtimes = env.Runtimes.As(trainjob.Trainer22)
			describedAs(t, env, stored, 1)
			wl := inttest.WorkloadOf(stored.UID, true)
			wl.Namespace, wl.OwnerReferences[0].Name = stored.Namespace, stored.Name
			wl.Spec.PodSets = []kueue.PodSet{{Name: "node", Count: tc.admitted}}
			for _, obj := range []client.Object{stored, js, wl} {
				if err := env.client.Create(t.Context(), obj); err != nil {
					t.Fatal(err)
				}
			}
			j := &job{env: env, TrainJob: *stored}
			if err := (&attempt{env: env}).restart(t.Context(), j, js); err != nil {
				t.Fatal(err)
			}
			if got := jobSetState(t, env.client, js); got != tc.wantJobSet || j.IsSuspended() != tc.wantSuspended {
				t.Errorf("The JobSet is %s, the job suspended: %t; want %s, %t", got, j.IsSuspended(), tc.wantJobSet, tc.wantSuspended)
			}
			close(recorder.Events)
			if told := <-recorder.Events; !strings.Contains(told, tc.wantEvent) {
				t.Errorf("The user is told %q, want %s", told, tc.wantEvent)
			}
		})
	}
}

// describedAs has a job remembered with a number of pods of its runtime.
func describedAs(t *testing.T, env *environment, job *trainjob.TrainJob, pods int32) {
	t.Helper()
	env.Remembered = podsets.NewRemembered()
	if err := env.Remember(t.Context(), job, []kueue.PodSet{{Name: "node", Count: pods}}); err != nil {
		t.Fatal(err)
	}
}

func children(js *jobsetapi.JobSet, done bool) []client.Object {
	if !done {
		return nil
	}
	return []client.Object{doneJob(js)}
}

func disagreeing(job, said, jobSet bool, since time.Time) (*trainjob.TrainJob, *jobsetapi.JobSet) {
	condition := metav1.Condition{Type: trainer.TrainJobSuspended, Status: metav1.ConditionFalse, LastTransitionTime: metav1.NewTime(since)}
	if said {
		condition.Status = metav1.ConditionTrue
	}
	t := &trainjob.TrainJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job", UID: "uid", Labels: map[string]string{"kueue.x-k8s.io/queue-name": "q"}},
		Spec:       trainjob.Spec{Suspend: &job},
		Status:     trainer.TrainJobStatus{Conditions: []metav1.Condition{condition}},
	}
	return t, &jobsetapi.JobSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job",
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(t, trainjob.GVK)}},
		Spec: jobsetapi.JobSetSpec{Suspend: &jobSet},
		Status: jobsetapi.JobSetStatus{Conditions: []metav1.Condition{{
			Type: string(jobsetapi.JobSetSuspended), Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(since.Add(-time.Minute)),
		}}},
	}
}

// doneJob returns a child Job of the JobSet that has succeeded.
func doneJob(js *jobsetapi.JobSet) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: js.Namespace, Name: "job-download-0", Labels: map[string]string{jobsetapi.JobSetNameKey: js.Name},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(js, jobsetapi.SchemeGroupVersion.WithKind("JobSet"))}},
		Status: batchv1.JobStatus{Succeeded: 1},
	}
}

func jobSetState(t *testing.T, c client.Client, js *jobsetapi.JobSet) string {
	t.Helper()
	var stored jobsetapi.JobSet
	err := c.Get(t.Context(), client.ObjectKeyFromObject(js), &stored)
	switch {
	case apierrors.IsNotFound(err):
		return "gone"
	case err != nil:
		t.Fatal(err)
	case ptr.Deref(stored.Spec.Suspend, false):
		return "suspended"
	}
	return "runs"
}
