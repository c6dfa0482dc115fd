// SPDX-License-Identifier: Apache-2.0

package jobevents

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
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
		"the same again is dropped": {events: []event{{"a", "Finished", "done"}, {"a", "Finished", "done"}}, want: []string{"Normal Finished done"}},
		"another object, another reason and another text are told": {events: []event{{"a", "Started", "x"}, {"b", "Started", "x"}, {"a", "Stopped", "x"}, {"a", "Stopped", "y"}},
			want: []string{"Normal Started x", "Normal Started x", "Normal Stopped x", "Normal Stopped y"}},
		"what happens again after something else is told": {events: []event{{"a", "Started", "x"}, {"a", "Stopped", "x"}, {"a", "Started", "x"}},
			want: []string{"Normal Started x", "Normal Stopped x", "Normal Started x"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			recorder := events.NewFakeRecorder(10)
			once := New(recorder)
			for _, e := range tc.events {
				job := inttest.Job(e.uid)
				once.Eventf(job, nil, corev1.EventTypeNormal, e.reason, ActionStart, "%s", e.note)
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

func TestBroadcast(t *testing.T) {
	tests := map[string]struct {
		notes []string
		want  []string
	}{
		"another note about an object that did not change is an event of its own": {notes: []string{"is missing", "differs by 2%s"},
			want: []string{"is missing x1 ", "differs by 2%s x1 "}},
		"the same note again is counted": {notes: []string{"is missing", "is missing"}, want: []string{"is missing x2 "}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset()
			recorder := expect.Must(Broadcast(t.Context(), client.EventsV1(), inttest.Scheme, "controller"))(t)
			written := func() []string {
				list := expect.Must(client.EventsV1().Events("team").List(t.Context(), metav1.ListOptions{}))(t)
				slices.SortFunc(list.Items, func(a, b eventsv1.Event) int { return a.EventTime.Compare(b.EventTime.Time) })
				var told []string
				for _, e := range list.Items {
					count := int32(1)
					if e.Series != nil {
						count = e.Series.Count
					}
					told = append(told, fmt.Sprintf("%s x%d %s", e.Note, count, e.Regarding.FieldPath))
				}
				return told
			}
			job := inttest.Job("1")
			job.ResourceVersion = "7"
			for _, note := range tc.notes {
				recorder.Eventf(job, nil, corev1.EventTypeWarning, "Waits", "Describe", "%s", note)
				// The broadcaster does not keep the order of what is recorded at once.
				_ = wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Second, true, func(context.Context) (bool, error) {
					return len(written()) > 0, nil
				})
			}
			_ = wait.PollUntilContextTimeout(t.Context(), time.Millisecond, 5*time.Second, true, func(context.Context) (bool, error) {
				return cmp.Equal(tc.want, written()), nil
			})
			expect.Same(t, "Unexpected events", tc.want, written())
		})
	}
}

func read(t *testing.T, path ...string) string {
	t.Helper()
	text := expect.Must(os.ReadFile(filepath.Join(path...)))(t)
	return string(text)
}

// reasons are those of reasons.go.
func reasons(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, reason := range regexp.MustCompile(`Reason\w+\s+= "(\w+)"`).FindAllStringSubmatch(read(t, "reasons.go"), -1) {
		found = append(found, reason[1])
	}
	expect.Need(t, len(found) >= 20, "Only %d reasons are found in reasons.go", len(found))
	return found
}

// Every reason is explained where users look for it.
func TestEveryReasonIsDocumented(t *testing.T) {
	_, events, _ := strings.Cut(read(t, "..", "..", "..", "docs", "logging.md"), "\n## Events\n")
	for _, reason := range reasons(t) {
		expect.That(t, strings.Contains(events, "`"+reason+"`"), "docs/logging.md does not explain event %s", reason)
	}
}

// Every event has a line in the log, which admins find by its reason.
func TestEveryReasonIsLogged(t *testing.T) {
	for _, reason := range reasons(t) {
		expect.That(t, messages[reason] != "", "No message is logged of event %s", reason)
	}
	docs := read(t, "..", "..", "..", "docs", "logging.md")
	for reason, message := range messages {
		row := "\n| `" + message + "` | 0 | `" + reason + "` |"
		expect.That(t, strings.Contains(docs, row), "docs/logging.md lacks the row %s", row)
	}
}

func TestTroubles(t *testing.T) {
	job := inttest.Job("a")
	warn := func(reason string) func(*Recorder) {
		return func(r *Recorder) { r.Warn(job, reason, ActionStart, errors.New("why")) }
	}
	looked := func(r *Recorder) { r.EndLook("a") }
	tests := map[string]struct {
		do   []func(*Recorder)
		want string
	}{
		"nothing was told":                     {},
		"a look that is not over":              {do: []func(*Recorder){warn(ReasonCannotStart)}},
		"a Warning":                            {do: []func(*Recorder){warn(ReasonCannotStart), looked}, want: ReasonCannotStart},
		"a Warning that is no news":            {do: []func(*Recorder){warn(ReasonCannotStart), looked, warn(ReasonCannotStart), looked}, want: ReasonCannotStart},
		"the first of two":                     {do: []func(*Recorder){warn(ReasonCannotStart), warn(ReasonRefused), looked}, want: ReasonCannotStart},
		"the next look found nothing":          {do: []func(*Recorder){warn(ReasonCannotStart), looked, looked}},
		"a state that somebody means":          {do: []func(*Recorder){func(r *Recorder) { r.WarnOfState(job, ActionQueue, ReasonDeactivated, "why") }, looked}},
		"what comes right by itself":           {do: []func(*Recorder){warn(ReasonCheckRetries), looked}},
		"a migration":                          {do: []func(*Recorder){func(r *Recorder) { r.Note("a", ReasonNotAlone) }, looked}},
		"what is told and is no trouble":       {do: []func(*Recorder){func(r *Recorder) { r.Eventf(job, nil, corev1.EventTypeNormal, ReasonStarted, ActionStart, "x") }, looked}},
		"what nobody is told, but still holds": {do: []func(*Recorder){func(r *Recorder) { r.Note("a", ReasonNotStarted) }, looked}, want: ReasonNotStarted},
		"another TrainJob":                     {do: []func(*Recorder){func(r *Recorder) { r.Note("b", ReasonNotStarted); r.EndLook("b") }, looked}},
		"a TrainJob that is gone":              {do: []func(*Recorder){warn(ReasonCannotStart), looked, func(r *Recorder) { r.Forget("a") }}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := New(&events.FakeRecorder{})
			for _, do := range tc.do {
				do(r)
			}
			expect.Same(t, "Unexpected StuckReason", tc.want, r.StuckReason("a"))
		})
	}
}
