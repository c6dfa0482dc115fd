// SPDX-License-Identifier: Apache-2.0

package jobevents

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestRecorder(t *testing.T) {
	type event struct {
		uid          types.UID
		reason, note string
	}
	expect.Rows(t, map[string]expect.Row[[]event, []string]{
		"the same again is dropped": {In: []event{{"a", "Finished", "done"}, {"a", "Finished", "done"}}, Want: []string{"Normal Finished done"}},
		"another object, another reason and another text are told": {In: []event{{"a", "Started", "x"}, {"b", "Started", "x"}, {"a", "Stopped", "x"}, {"a", "Stopped", "y"}},
			Want: []string{"Normal Started x", "Normal Started x", "Normal Stopped x", "Normal Stopped y"}},
		"what happens again after something else is told": {In: []event{{"a", "Started", "x"}, {"a", "Stopped", "x"}, {"a", "Started", "x"}},
			Want: []string{"Normal Started x", "Normal Stopped x", "Normal Started x"}},
	}, func(t *testing.T, tc expect.Row[[]event, []string]) {
		recorder := events.NewFakeRecorder(10)
		once := New(recorder)
		for _, e := range tc.In {
			once.Eventf(inttest.Job(e.uid), nil, corev1.EventTypeNormal, e.reason, ActionStart, "%s", e.note)
		}
		expect.Same(t, "Unexpected events", tc.Want, toldBy(recorder))
	})
}

func toldBy(recorder *events.FakeRecorder) (all []string) {
	for len(recorder.Events) > 0 {
		all = append(all, <-recorder.Events)
	}
	return all
}

func TestRecorderRemembersEveryTrainJob(t *testing.T) {
	const many = 20_000
	recorder := events.NewFakeRecorder(2 * many)
	once := New(recorder)
	for range 2 {
		for i := range many {
			once.Eventf(inttest.Job(types.UID(strconv.Itoa(i))), nil, corev1.EventTypeNormal, "Unknown", ActionStart, "no class")
		}
	}
	expect.Same(t, "Unexpected number of events", many, len(recorder.Events))
}

// A refusal of the API server has its reason behind the object that it quotes.
func TestLongWarningKeepsItsEnd(t *testing.T) {
	recorder := events.NewFakeRecorder(1)
	New(recorder).Warn(inttest.Job("a"), "Refused", ActionStart, errors.New("spec.template: Invalid value: "+strings.Repeat("ü", 4000)+": field is immutable"))
	said := <-recorder.Events
	expect.That(t, len(said) <= 1100 && strings.Contains(said, "spec.template: Invalid value") && strings.HasSuffix(said, ": field is immutable"), "Event of %d bytes: %s", len(said), said)
}

func TestResolvedEventIsNews(t *testing.T) {
	for settled, want := range map[string]int{"Unknown": 2, "Unkn": 1} {
		recorder := events.NewFakeRecorder(10)
		once := New(recorder)
		job := inttest.Job("a")
		for range 2 {
			once.Eventf(job, nil, corev1.EventTypeWarning, "Unknown", ActionStart, "no runtime")
			once.Resolve(job.UID, settled)
		}
		expect.Same(t, "Unexpected number of events where what is over is "+settled, want, len(recorder.Events))
	}
}

func TestBroadcast(t *testing.T) {
	expect.Rows(t, map[string]expect.Row[[]string, []string]{
		"another note about an object that did not change is an event of its own": {In: []string{"is missing", "differs by 2%s"}, Want: []string{"is missing x1 ", "differs by 2%s x1 "}},
		"the same note again is counted":                                          {In: []string{"is missing", "is missing"}, Want: []string{"is missing x2 "}},
	}, func(t *testing.T, tc expect.Row[[]string, []string]) {
		client := fake.NewClientset()
		recorder := expect.Must(broadcast(t.Context(), client.EventsV1(), inttest.Scheme))(t)
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
		for _, note := range tc.In {
			recorder.Eventf(job, nil, corev1.EventTypeWarning, "Waits", "Describe", "%s", note)
			// The broadcaster does not keep the order of what is recorded at once.
			_ = wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Second, true, func(context.Context) (bool, error) {
				return len(written()) > 0, nil
			})
		}
		_ = wait.PollUntilContextTimeout(t.Context(), time.Millisecond, 5*time.Second, true, func(context.Context) (bool, error) {
			return cmp.Equal(tc.Want, written()), nil
		})
		expect.Same(t, "Unexpected events", tc.Want, written())
	})
}

// Every reason is explained where users look for it, and has a line in the log, which admins find by it.
func TestEveryReasonIsDocumented(t *testing.T) {
	source, docs := string(expect.Must(os.ReadFile("reasons.go"))(t)), string(expect.Must(os.ReadFile("../../../docs/logging.md"))(t))
	_, events, _ := strings.Cut(docs, "\n## Events\n")
	reasons := regexp.MustCompile(`Reason\w+\s+= "(\w+)"`).FindAllStringSubmatch(source, -1)
	expect.Need(t, len(reasons) >= 20, "Only %d reasons are found in reasons.go", len(reasons))
	for _, found := range reasons {
		expect.That(t, strings.Contains(events, "`"+found[1]+"`"), "docs/logging.md does not explain event %s", found[1])
		expect.That(t, messages[found[1]] != "", "No message is logged of event %s", found[1])
	}
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
	expect.Rows(t, map[string]expect.Row[[]func(*Recorder), string]{
		"nothing was told":                     {},
		"a look that is not over":              {In: []func(*Recorder){warn(ReasonCannotStart)}},
		"a Warning":                            {In: []func(*Recorder){warn(ReasonCannotStart), looked}, Want: ReasonCannotStart},
		"a Warning that is no news":            {In: []func(*Recorder){warn(ReasonCannotStart), looked, warn(ReasonCannotStart), looked}, Want: ReasonCannotStart},
		"the first of two":                     {In: []func(*Recorder){warn(ReasonCannotStart), warn(ReasonRefused), looked}, Want: ReasonCannotStart},
		"the next look found nothing":          {In: []func(*Recorder){warn(ReasonCannotStart), looked, looked}},
		"a state that somebody means":          {In: []func(*Recorder){func(r *Recorder) { r.WarnOfState(job, Notice{Reason: ReasonDeactivated, Message: "why"}) }, looked}},
		"what comes right by itself":           {In: []func(*Recorder){warn(ReasonCheckRetries), looked}},
		"a migration":                          {In: []func(*Recorder){func(r *Recorder) { r.Note("a", ReasonNotAlone) }, looked}},
		"what is told and is no trouble":       {In: []func(*Recorder){func(r *Recorder) { r.Eventf(job, nil, corev1.EventTypeNormal, ReasonStarted, ActionStart, "x") }, looked}},
		"what nobody is told, but still holds": {In: []func(*Recorder){func(r *Recorder) { r.Note("a", ReasonNotStarted) }, looked}, Want: ReasonNotStarted},
		"another TrainJob":                     {In: []func(*Recorder){func(r *Recorder) { r.Note("b", ReasonNotStarted); r.EndLook("b") }, looked}},
		"a TrainJob that is gone":              {In: []func(*Recorder){warn(ReasonCannotStart), looked, func(r *Recorder) { r.Forget("a") }}},
	}, func(t *testing.T, tc expect.Row[[]func(*Recorder), string]) {
		r := New(&events.FakeRecorder{})
		for _, do := range tc.In {
			do(r)
		}
		expect.Same(t, "Unexpected StuckReason", tc.Want, r.StuckReason("a"))
	})
}

func TestToldAt(t *testing.T) {
	at := time.Unix(1000, 0)
	expect.Rows(t, map[string]eventsv1.Event{
		"once, by a recorder of the new kind":  {EventTime: metav1.NewMicroTime(at)},
		"often, by one of the new kind":        {EventTime: metav1.NewMicroTime(at.Add(-time.Hour)), Series: &eventsv1.EventSeries{LastObservedTime: metav1.NewMicroTime(at)}},
		"often, by a recorder of the old kind": {ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(at.Add(-time.Hour))}, DeprecatedLastTimestamp: metav1.NewTime(at)},
		"by hand":                              {ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(at)}},
	}, func(t *testing.T, ev eventsv1.Event) {
		expect.That(t, toldAt(&ev).Equal(at), "toldAt() = %s, want %s", toldAt(&ev), at)
	})
}

const job types.UID = "job"

func TestLastRefusalOf(t *testing.T) {
	at := time.Unix(1000, 0)
	other := inttest.Refusal(at.Add(5*time.Minute), job, "no refusal")
	other.Reason = "Suspended"
	last := map[types.UID]refusal{}
	addRefusals(last, []eventsv1.Event{
		*inttest.Refusal(at.Add(time.Minute), job, "second"), *inttest.Refusal(at, job, "first"), *inttest.Refusal(at.Add(2*time.Minute), "other", "third"), *other,
	})
	r := NewRefusals(nil)
	r.entries[namespacedKind{"ns", "TrainJob"}] = &entry{last: last, next: time.Now().Add(time.Hour)}
	type row struct {
		asked []types.UID
		since time.Time
		want  string
	}
	expect.Rows(t, map[string]row{
		"of one":           {asked: []types.UID{job}, want: "second"},
		"of two":           {asked: []types.UID{"other", job}, want: "third"},
		"of one not named": {asked: []types.UID{"fourth"}},
		"told long ago":    {asked: []types.UID{job}, since: at.Add(time.Hour)},
	}, func(t *testing.T, tc row) {
		note, again, err := r.Last(t.Context(), "ns", "TrainJob", tc.asked, tc.since, time.Time{})
		expect.That(t, note == tc.want && again == 0 && err == nil, "It says %q, again %s, %v; want %q", note, again, err, tc.want)
	})
}

// refusalsBy are those that an API server answers with.
func refusalsBy(answer func(*eventsv1.EventList, client.ListOptions) error) *Refusals {
	return NewRefusals(interceptor.NewClient(inttest.Fake().Build(), interceptor.Funcs{
		List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			asked := client.ListOptions{}
			asked.ApplyOptions(opts)
			return answer(list.(*eventsv1.EventList), asked)
		},
	}))
}

// However many jobs are late, the API server looks through its events once in a while.
func TestRefusalsAreReadForAllJobsAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads, takes := 0, 2*time.Second
		var told []eventsv1.Event
		r := refusalsBy(func(list *eventsv1.EventList, _ client.ListOptions) error {
			reads++
			time.Sleep(takes)
			list.Items = told
			return nil
		})
		ask := func(asOf time.Time) (string, time.Duration) {
			note, again, err := r.Last(t.Context(), "ns", "TrainJob", []types.UID{job}, time.Time{}, asOf)
			expect.NoError(t, err)
			return note, again
		}
		for range 100 {
			go ask(time.Time{})
		}
		synctest.Wait()
		_, again := ask(time.Time{})
		expect.That(t, again != 0, "Somebody has an answer before the events were read")
		time.Sleep(takes)
		synctest.Wait()
		told = []eventsv1.Event{*inttest.Refusal(time.Now(), job, "denied")}
		note, again := ask(time.Time{})
		expect.That(t, note == "" && again <= 0 && reads == 1,
			"It says %q, again %s after %d reads; want an answer of before the refusal after 1", note, again, reads)
		_, again = ask(time.Now())
		expect.Same(t, "Unexpected wait of who has to know of now", snapshotRatio*takes, again)
		time.Sleep(again)
		note, _ = ask(time.Now())
		expect.That(t, note == "denied" && reads == 2, "Then it says %q after %d reads, want denied after 2", note, reads)
		// What it said an hour ago is no answer, also while somebody else reads.
		time.Sleep(time.Hour)
		go ask(time.Time{})
		synctest.Wait()
		note, again = ask(time.Time{})
		expect.That(t, note == "" && again != 0 && reads == 3, "While events are read it says %q, again %s; want to be asked again", note, again)
		time.Sleep(takes)
	})
}

func TestRefusalsThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer, reads := errors.New("timed out"), 0
		r := refusalsBy(func(*eventsv1.EventList, client.ListOptions) error {
			reads++
			time.Sleep(time.Second)
			return answer
		})
		ask := func() (string, time.Duration, error) {
			return r.Last(t.Context(), "ns", "TrainJob", []types.UID{job}, time.Time{}, time.Time{})
		}
		_, _, err := ask()
		expect.That(t, errors.Is(err, answer), "Last returned %v, want %v", err, answer)
		_, again, err := ask()
		expect.That(t, again == snapshotRatio*time.Second && err == nil && reads == 1,
			"The next one asks again after %s, %v, and %d reads; want %s after 1", again, err, reads, snapshotRatio*time.Second)
		time.Sleep(snapshotRatio * time.Second)
		answer = apierrors.NewForbidden(schema.GroupResource{Resource: "events"}, "", nil)
		note, again, err := ask()
		expect.That(t, note == "" && again <= 0 && err == nil, "With an older role it says %q, %s, %v; want silence", note, again, err)
	})
}

func TestRefusalsAreReadInChunks(t *testing.T) {
	type row struct {
		// endless is a namespace whose tenant makes events without end.
		endless   bool
		wantReads int
		want      string
	}
	expect.Rows(t, map[string]row{
		"the last chunk has it": {wantReads: 3, want: "denied"},
		"there is no last one":  {endless: true, wantReads: maxChunks},
	}, func(t *testing.T, tc row) {
		reads := 0
		r := refusalsBy(func(list *eventsv1.EventList, asked client.ListOptions) error {
			want := strings.Repeat("x", reads)
			expect.That(t, asked.Limit == chunkSize && asked.Continue == want,
				"It asks for %d from %q on, want %d from %q on", asked.Limit, asked.Continue, chunkSize, want)
			for from, want := range map[string]bool{"trainjob_controller": true, "kueue-trainer": false} {
				event := fields.Set{"type": "Warning", "regarding.kind": "TrainJob", "reportingController": from}
				expect.That(t, asked.FieldSelector.Matches(event) == want, "It asks for events of %s: want %t", from, want)
			}
			reads++
			about, next := types.UID("other"), strings.Repeat("x", reads)
			if !tc.endless && reads == tc.wantReads {
				about, next = job, ""
			}
			list.Continue, list.Items = next, []eventsv1.Event{*inttest.Refusal(time.Unix(1000, 0), about, "denied")}
			return nil
		})
		note, _, err := r.Last(t.Context(), "ns", "TrainJob", []types.UID{job}, time.Time{}, time.Time{})
		expect.That(t, note == tc.want && err == nil && reads == tc.wantReads,
			"It says %q, %v after %d reads; want %q after %d", note, err, reads, tc.want, tc.wantReads)
	})
}

func TestEventsAreLimitedApart(t *testing.T) {
	limited := &rest.Config{RateLimiter: flowcontrol.NewTokenBucketRateLimiter(1, 1)}
	events := apart(limited)
	expect.That(t, events.RateLimiter != nil && events.RateLimiter != limited.RateLimiter, "Events wait with all other requests, or for nothing")
	expect.Same(t, "Events are limited where nothing is", true, apart(&rest.Config{}).RateLimiter == nil)
}
