// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/testenv"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/logging"
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
	r.deps.expectations = testenv.LedSince(time.Now().Add(-trainerSilent / 2))
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

// Who stands aside says so of each TrainJob once, and again the next time that it does.
func TestStandingAsideIsToldEachTime(t *testing.T) {
	stored, _ := suspendedJob()
	r, recorder := newReconciler(t, stored)
	l := &logged{reconciler: r}
	want := []said{{Msg: "Stood aside from TrainJob for Kueue's in-tree integration", Reason: "InTreeActive", TrainJob: jobKey}}
	for _, step := range []struct {
		active bool
		want   []said
	}{{true, want}, {true, nil}, {false, nil}, {true, want}, {true, nil}} {
		r.deps.inTree = testenv.InTree(t, step.active)
		if got := l.look(t); step.active {
			expect.Same(t, "The log has", step.want, got)
		}
	}
	expect.Same(t, "Unexpected number of events for two times", 2, len(eventsSoFar(recorder, jobevents.ReasonNotAlone)))
}
