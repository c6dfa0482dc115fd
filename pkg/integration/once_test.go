// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

func TestOnceRecorder(t *testing.T) {
	type event struct {
		uid          types.UID
		reason, note string
	}
	tests := map[string]struct {
		events []event
		want   []string
	}{
		"the same again is dropped": {
			events: []event{{"a", "Finished", "done"}, {"a", "Finished", "done"}},
			want:   []string{"Normal Finished done"},
		},
		"another object, another reason and another text are told": {
			events: []event{{"a", "Started", "x"}, {"b", "Started", "x"}, {"a", "Stopped", "x"}, {"a", "Stopped", "y"}},
			want:   []string{"Normal Started x", "Normal Started x", "Normal Stopped x", "Normal Stopped y"},
		},
		"what happens again after something else is told": {
			events: []event{{"a", "Started", "x"}, {"a", "Stopped", "x"}, {"a", "Started", "x"}},
			want:   []string{"Normal Started x", "Normal Stopped x", "Normal Started x"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			recorder := events.NewFakeRecorder(10)
			once := newOnceRecorder(recorder)
			for _, e := range tc.events {
				job := &trainjob.TrainJob{ObjectMeta: metav1.ObjectMeta{UID: e.uid}}
				once.Eventf(job, nil, corev1.EventTypeNormal, e.reason, "Act", "%s", e.note)
			}
			var got []string
			for len(recorder.Events) > 0 {
				got = append(got, <-recorder.Events)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOnceRecorderSettles(t *testing.T) {
	tests := map[string]struct {
		settled string
		want    int
	}{
		"what was over and holds again is told": {settled: "Unknown", want: 2},
		"the end of something else is no news":  {settled: "Unkn", want: 1},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			recorder := events.NewFakeRecorder(10)
			once := newOnceRecorder(recorder)
			job := &trainjob.TrainJob{ObjectMeta: metav1.ObjectMeta{UID: "a"}}
			for range 2 {
				once.Eventf(job, nil, corev1.EventTypeWarning, "Unknown", "Act", "no runtime")
				once.settle(job.UID, tc.settled)
			}
			if got := len(recorder.Events); got != tc.want {
				t.Errorf("%d events, want %d", got, tc.want)
			}
		})
	}
}

// Whoever was told that the manager stands aside is told again the next time it does.
func TestStandAsideIsToldEachTime(t *testing.T) {
	stored, _ := disagreeing(true, true, true, time.Now())
	r, recorder := newReconciler(t, stored)
	var reasons told
	for range 2 {
		for range 2 {
			if _, err := r.standAside(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(stored)}, &reasons, reasonNotAlone, inTreeRemedy); err != nil {
				t.Fatal(err)
			}
		}
		reasons.forget()
	}
	if got := len(recorder.Events); got != 2 {
		t.Errorf("%d events for two times, want 2", got)
	}
}
