// SPDX-License-Identifier: Apache-2.0

package jobevents

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestToldAt(t *testing.T) {
	at := time.Unix(1000, 0)
	tests := map[string]eventsv1.Event{
		"once, by a recorder of the new kind":  {EventTime: metav1.NewMicroTime(at)},
		"often, by one of the new kind":        {EventTime: metav1.NewMicroTime(at.Add(-time.Hour)), Series: &eventsv1.EventSeries{LastObservedTime: metav1.NewMicroTime(at)}},
		"often, by a recorder of the old kind": {ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(at.Add(-time.Hour))}, DeprecatedLastTimestamp: metav1.NewTime(at)},
		"by hand":                              {ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(at)}},
	}
	for name, ev := range tests {
		t.Run(name, func(t *testing.T) {
			got := toldAt(&ev)
			expect.That(t, got.Equal(at), "toldAt() = %s, want %s", got, at)
		})
	}
}

const job types.UID = "job"

func TestLastRefusalOf(t *testing.T) {
	at := time.Unix(1000, 0)
	other := inttest.Refusal(at.Add(5*time.Minute), job, "no refusal")
	other.Reason = "Suspended"
	p := newSnapshot(at)
	p.add([]eventsv1.Event{
		*inttest.Refusal(at.Add(time.Minute), job, "second"), *inttest.Refusal(at, job, "first"), *inttest.Refusal(at.Add(2*time.Minute), "other", "third"), *other,
	})
	tests := map[string]struct {
		asked []types.UID
		since time.Time
		want  string
	}{
		"of one":           {asked: []types.UID{job}, want: "second"},
		"of two":           {asked: []types.UID{"other", job}, want: "third"},
		"of one not named": {asked: []types.UID{"fourth"}},
		"told long ago":    {asked: []types.UID{job}, since: at.Add(time.Hour)},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) { expect.Same(t, "Unexpected lastOf", tc.want, p.lastOf(tc.asked, tc.since)) })
	}
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
	tests := map[string]struct {
		// endless is a namespace whose tenant makes events without end.
		endless   bool
		wantReads int
		want      string
	}{
		"the last chunk has it": {wantReads: 3, want: "denied"},
		"there is no last one":  {endless: true, wantReads: maxChunks},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			reads := 0
			r := refusalsBy(func(list *eventsv1.EventList, asked client.ListOptions) error {
				want := strings.Repeat("x", reads)
				expect.That(t, asked.Limit == chunkSize && asked.Continue == want,
					"It asks for %d from %q on, want %d from %q on", asked.Limit, asked.Continue, chunkSize, want)
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
}
