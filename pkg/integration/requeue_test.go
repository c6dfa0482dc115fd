// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/podsets"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// A Workload that is not replaced while it gives its quota back stays deactivated.
func TestDeactivatedWorkloadStays(t *testing.T) {
	cases := map[string]struct {
		evicted  bool
		wantSkip bool
	}{
		"before Kueue evicts it, the reconcile is over": {wantSkip: true},
		"evicted, it is what describes the job":         {evicted: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			wl := inttest.WorkloadOf("a", true)
			wl.Spec.Active = ptr.To(false)
			wl.Spec.PodSets = []kueue.PodSet{{Name: "as-it-ran", Count: 4}}
			if tc.evicted {
				wl.Status.Conditions = append(wl.Status.Conditions, metav1.Condition{Type: kueue.WorkloadEvicted, Status: metav1.ConditionTrue})
			}
			j := &job{env: &environment{Describer: &podsets.Describer{}, state: state.FromCache(indexed(t, wl)), expectations: inttest.LedSince(time.Time{}), memory: &memory{}, starts: newStarts(time.Hour)}, TrainJob: trainjob.TrainJob{
				ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "llm", UID: "a"}, Spec: trainjob.Spec{Suspend: ptr.To(true)},
			}}
			got := j.follow(t.Context())
			if got.err != nil || got.ends() != tc.wantSkip {
				t.Errorf("follow() = %+v, want it to end here: %t", got, tc.wantSkip)
			}
			if got.ends() {
				return
			}
			podSets, err := j.PodSets(t.Context(), nil)
			if diff := cmp.Diff(wl.Spec.PodSets, podSets); err != nil || diff != "" {
				t.Errorf("Unexpected PodSets (-want,+got), error %v:\n%s", err, diff)
			}
		})
	}
}

// One that is deleted is stopped for by jobframework only as long as it matches, whatever its runtime
// says by now.
func TestDeletedWorkloadDescribesTheJob(t *testing.T) {
	wl := inttest.WorkloadOf("a", true)
	wl.Spec.PodSets = []kueue.PodSet{{Name: "as-it-ran", Count: 4}}
	wl.DeletionTimestamp, wl.Finalizers = ptr.To(metav1.Now()), []string{kueue.ResourceInUseFinalizerName}
	recorder := jobevents.New(events.NewFakeRecorder(1))
	j := &job{env: &environment{Describer: &podsets.Describer{Recorder: recorder}, state: state.FromCache(indexed(t, wl))}, active: ptr.To(false), TrainJob: trainjob.TrainJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "llm", UID: "a"}, Spec: trainjob.Spec{Suspend: ptr.To(true)},
	}, described: []kueue.PodSet{{Name: "as-it-would-run", Count: 2}}}
	podSets, err := j.PodSets(t.Context(), nil)
	if diff := cmp.Diff(wl.Spec.PodSets, podSets); err != nil || diff != "" {
		t.Errorf("Unexpected PodSets (-want,+got), error %v:\n%s", err, diff)
	}
}

// indexed returns a client that has a Workload.
func indexed(t *testing.T, wl *kueue.Workload) client.Client {
	t.Helper()
	return inttest.ByOwner(fake.NewClientBuilder().WithScheme(inttest.Scheme(t)).WithObjects(wl)).Build()
}
