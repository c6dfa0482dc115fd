// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"strings"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/testenv"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestTrainJobsOf(t *testing.T) {
	job := func(namespace, name, kind string, suspended bool, status ...string) *trainjob.TrainJob {
		j := &trainjob.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		j.Spec.RuntimeRef.Name, j.Spec.Suspend = "torch", ptr.To(suspended)
		if kind != "" {
			j.Spec.RuntimeRef.Kind = ptr.To(kind)
		}
		for _, s := range status {
			j.Status.Conditions = append(j.Status.Conditions, inttest.True(s, ""))
		}
		return j
	}
	other := job("a", "other", "", true)
	other.Spec.RuntimeRef.Name = "mpi"
	m := mapper{inttest.Fake(
		job("a", "waits", "", true), job("b", "waits-too", trainer.ClusterTrainingRuntimeKind, true),
		job("a", "runs", "", false), job("a", "is-over", "", true, trainer.TrainJobComplete), other,
		job("a", "of-its-namespace", trainer.TrainingRuntimeKind, true), job("b", "of-another", trainer.TrainingRuntimeKind, true)).Build()}
	tests := map[string]struct {
		runtime client.Object
		want    []string
	}{
		"of the cluster: those that wait, in every namespace": {
			runtime: &trainer.ClusterTrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: "torch"}},
			want:    []string{"a/waits", "b/waits-too"},
		},
		"of a namespace: those that wait there and name that kind": {
			runtime: &trainer.TrainingRuntime{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "torch"}},
			want:    []string{"a/of-its-namespace"},
		},
		"nobody names it": {runtime: &trainer.ClusterTrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: "unused"}}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, request := range m.trainJobsOf(t.Context(), tc.runtime) {
				got = append(got, request.String())
			}
			expect.Same(t, "Unexpected TrainJobs", tc.want, got)
		})
	}
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
			r, recorder := newReconciler(t, stored, js)
			r.env.expectations, r.env.trainer = testenv.LedSince(tc.written), testenv.Served(t, trainjob.Trainer22)
			env := expect.Must(r.env.now())(t)
			expect.NoError(t, awaitRollout(t.Context(), jobOf(t, &reconciler{env: env}, stored)))
			expect.Same(t, "Unexpected state of the JobSet", tc.wantJobSet, jobSetState(t, env.client, js))
			var got []string
			for _, event := range eventsSoFar(recorder, "") {
				got = append(got, strings.Fields(event)[1])
			}
			expect.Same(t, "Unexpected events", tc.wantEvents, got)
		})
	}
}
