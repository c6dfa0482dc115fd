// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestTrainJobsOf(t *testing.T) {
	job := func(namespace, name, kind string, suspended bool, status ...string) *trainjob.TrainJob {
		j := &trainjob.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		j.Spec.RuntimeRef.Name, j.Spec.Suspend = "torch", new(suspended)
		if kind != "" {
			j.Spec.RuntimeRef.Kind = new(kind)
		}
		for _, s := range status {
			j.Status.Conditions = append(j.Status.Conditions, kit.True(s, ""))
		}
		return j
	}
	other := job("a", "other", "", true)
	other.Spec.RuntimeRef.Name = "mpi"
	m := Mapper{inttest.Fake(
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
			for _, request := range m.TrainJobsOf(t.Context(), tc.runtime) {
				got = append(got, request.String())
			}
			expect.Same(t, "Unexpected TrainJobs", tc.want, got)
		})
	}
}
