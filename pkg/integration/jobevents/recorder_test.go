// SPDX-License-Identifier: Apache-2.0

package jobevents

import (
	"testing"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestRecorder(t *testing.T) {
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
			once := New(recorder)
			for _, e := range tc.events {
				job := inttest.Job(e.uid)
				once.Eventf(job, nil, corev1.EventTypeNormal, e.reason, "Act", "%s", e.note)
			}
			var got []string
			for len(recorder.Events) > 0 {
				got = append(got, <-recorder.Events)
			}
			expect.Same(t, "Unexpected events", tc.want, got)
		})
	}
}

func TestResolvedEventIsNews(t *testing.T) {
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
			once := New(recorder)
			job := inttest.Job("a")
			for range 2 {
				once.Eventf(job, nil, corev1.EventTypeWarning, "Unknown", "Act", "no runtime")
				once.Resolve(job.UID, tc.settled)
			}
			expect.Same(t, "Unexpected number of events", tc.want, len(recorder.Events))
		})
	}
}
