// SPDX-License-Identifier: Apache-2.0

package forecast_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/forecast"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// ask draws futures of a scene whose jobs run as is known of them.
func (s *scene) ask(t *testing.T, runtimes *forecast.Runtimes, known func(*forecast.Job) forecast.Running) (*forecast.Question, *forecast.Futures) {
	t.Helper()
	q := &forecast.Question{World: s.World, Runtimes: runtimes, Settings: s.settings, Futures: 100, Seed: 1}
	for n := range s.jobs {
		q.Entrants = append(q.Entrants, forecast.Entrant{Workload: s.jobs[n].Workload, Running: known(&s.jobs[n])})
	}
	return q, expect.Must(forecast.Draw(t.Context(), q))(t)
}

var spread = []float64{1, 10, 2, 9, 3, 8, 4, 7, 5, 6, 1, 10, 2, 9, 3, 8, 4, 7, 5, 6}

func TestBand(t *testing.T) {
	hours := ranFor(forecast.Traits{Queue: "a"}, true, spread...)
	type row struct {
		// alone has nobody run before it.
		alone  bool
		past   []forecast.Past
		assume time.Duration
		// want is P10, P50, P90 in hours, the share that is late, and after whom.
		want string
	}
	expect.Rows(t, map[string]row{
		"after the one that runs, whose end is assumed":       {assume: 4 * time.Hour, want: "3h 3h 3h late 0% after first 100%"},
		"at once where there is room":                         {alone: true, want: "0h 0h 0h late 0% after  0%"},
		"as spread as the jobs before it":                     {past: hours, want: "1h 6h 9h late 0% after first 100%"},
		"late where nobody knows when the one before it ends": {want: "- - - late 100% after  0%"},
	}, func(t *testing.T, tc row) {
		s := newScene().queue("a", "", 4)
		if !tc.alone {
			s.running("first", "a", 4, 0, 0)
		}
		s.job("mine", "a", 4, 0, 0)
		runtimes := forecast.NewRuntimes(tc.past, tc.assume)
		_, futures := s.ask(t, runtimes, func(j *forecast.Job) forecast.Running {
			subject := forecast.Subject{Traits: forecast.Traits{Queue: "a"}}
			if j.Workload.Status.Admission != nil {
				subject.Running = time.Hour
			}
			return runtimes.Of(subject)
		})
		b := futures.Band(client.ObjectKey{Namespace: "team", Name: "mine"})
		got := fmt.Sprintf("%s %s %s late %.0f%% after %s %.0f%%", inHours(b.P10), inHours(b.P50), inHours(b.P90), 100*b.Late, b.After.Name, 100*b.AfterShare)
		expect.Same(t, "Unexpected band", tc.want, got)
	})
}

func inHours(d *time.Duration) string {
	if d == nil {
		return "-"
	}
	return fmt.Sprintf("%dh", int(d.Round(time.Hour).Hours()))
}

func TestDrawIsTheSameAgain(t *testing.T) {
	s := crowd(3, 8)
	past := ranFor(forecast.Traits{Queue: "a"}, true, spread...)
	runtimes := forecast.NewRuntimes(past, 0)
	known := func(*forecast.Job) forecast.Running {
		return runtimes.Of(forecast.Subject{Traits: forecast.Traits{Queue: "a"}})
	}
	_, first := s.ask(t, runtimes, known)
	_, second := s.ask(t, runtimes, known)
	expect.Same(t, "The same question has another answer", first, second)
}

func TestDrawEndsInTime(t *testing.T) {
	s := crowd(3, 250)
	s.settings.Until = []client.ObjectKey{{Namespace: "team", Name: "nobody"}}
	known := forecast.NewRuntimes(nil, time.Hour).Of(forecast.Subject{})
	q := &forecast.Question{World: s.World, Runtimes: forecast.NewRuntimes(nil, time.Hour), Settings: s.settings, Futures: math.MaxInt32, Time: time.Millisecond}
	for n := range s.jobs {
		q.Entrants = append(q.Entrants, forecast.Entrant{Workload: s.jobs[n].Workload, Running: known})
	}
	futures := expect.Must(forecast.Draw(t.Context(), q))(t)
	expect.Same(t, "Futures that were cut off are counted", 0, futures.Drawn)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := forecast.Draw(ended, q)
	expect.That(t, errors.Is(err, context.Canceled), "who gives up is told so: %v", err)
}

func TestAlone(t *testing.T) {
	s := newScene().queue("a", "", 4, func(spec *kueue.ClusterQueueSpec) { spec.QueueingStrategy = kueue.StrictFIFO })
	s.running("first", "a", 4, 0, 0)
	s.job("large", "a", 5, 1, 0)
	s.job("small", "a", 3, 0, 0)
	s.job("other", "a", 4, 0, 0)
	q := &forecast.Question{World: s.World, Settings: s.settings}
	some := map[client.ObjectKey]bool{}
	for n := range s.jobs {
		q.Entrants = append(q.Entrants, forecast.Entrant{Workload: s.jobs[n].Workload})
		some[client.ObjectKeyFromObject(s.jobs[n].Workload)] = n > 0
	}
	want := map[client.ObjectKey]bool{{Namespace: "team", Name: "small"}: true, {Namespace: "team", Name: "other"}: true}
	expect.Same(t, "Unexpected starts", want, expect.Must(q.Alone(t.Context(), some))(t))
}

func TestArrivals(t *testing.T) {
	s := newScene()
	s.settings.Horizon = 24 * time.Hour
	s.queue("a", "", 4)
	s.running("first", "a", 4, 0, 0)
	s.job("mine", "a", 4, 0, 0)
	runtimes := forecast.NewRuntimes(nil, 2*time.Hour)
	known := runtimes.Of(forecast.Subject{Running: time.Hour})
	q, quiet := s.ask(t, runtimes, func(*forecast.Job) forecast.Running { return known })
	high := newScene().job("high", "a", 4, 0, 0)
	high.Workload.Spec.Priority = ptr.To[int32](100)
	q.Arrivals = []forecast.Arrival{{Entrant: forecast.Entrant{Workload: high.Workload, Running: known}, Within: 4 * time.Hour}}
	busy := expect.Must(forecast.Draw(t.Context(), q))(t)
	mine := client.ObjectKeyFromObject(s.jobs[1].Workload)
	expect.That(t, len(quiet.Starts[mine]) == 100 && mean(busy.Starts[mine]) > mean(quiet.Starts[mine]), "who comes with a higher priority goes first")
}

func TestWhoComesRunsAsLongAsOneThatReports(t *testing.T) {
	s := newScene().queue("a", "", 4)
	like := s.job("like", "a", 4, 0, 0).Workload
	runtimes := forecast.NewRuntimes(nil, 0)
	known := runtimes.Of(forecast.Subject{Running: 3 * time.Hour, Reported: ptr.To(time.Hour)})
	q := &forecast.Question{World: s.World, Runtimes: runtimes, Settings: s.settings, Arrivals: []forecast.Arrival{{Entrant: forecast.Entrant{Workload: like, Running: known}, Within: time.Hour}}}
	jobs := q.Jobs(0)
	expect.Need(t, len(jobs) > 0, "somebody comes")
	expect.Same(t, "Unexpected running time", 4*time.Hour, jobs[0].Runs)
}

func mean(starts []forecast.Start) time.Duration {
	var sum time.Duration
	for _, s := range starts {
		sum += s.In
	}
	return sum / time.Duration(max(1, len(starts)))
}

// A deadline of a TrainJob is that of each run.
func TestPreemptedJobsStartOver(t *testing.T) {
	r := forecast.NewRuntimes(nil, 0)
	limited := forecast.Subject{Limit: 4 * time.Hour, Running: 3 * time.Hour}
	q := &forecast.Question{Runtimes: r, Entrants: []forecast.Entrant{{Running: r.Of(limited)}}}
	expect.Same(t, "It runs again", 4*time.Hour, q.Jobs(1)[0].Again)
}

func TestBandOfFewFutures(t *testing.T) {
	key := client.ObjectKey{Namespace: "team", Name: "mine"}
	type row struct {
		drawn int
		// hours are the starts, and want is P10, P50 and P90.
		hours []int
		want  string
	}
	expect.Rows(t, map[string]row{
		"the last is the latest":     {drawn: 5, hours: []int{1, 2, 3, 4, 5}, want: "1h 3h 5h"},
		"one":                        {drawn: 1, hours: []int{7}, want: "7h 7h 7h"},
		"one of five comes too late": {drawn: 5, hours: []int{1, 2, 3, 4}, want: "1h 3h -"},
		"one of nine comes too late": {drawn: 9, hours: []int{1, 2, 3, 4, 5, 6, 7, 8}, want: "1h 5h -"},
		"nine have a tenth":          {drawn: 9, hours: []int{1, 2, 3, 4, 5, 6, 7, 8, 9}, want: "1h 5h 9h"},
		"of nineteen, the last is beyond nine tenths": {drawn: 19, hours: []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18}, want: "2h 10h 18h"},
		"none": {want: "- - -"},
	}, func(t *testing.T, tc row) {
		f := &forecast.Futures{Drawn: tc.drawn, Starts: map[client.ObjectKey][]forecast.Start{}}
		for _, h := range tc.hours {
			f.Starts[key] = append(f.Starts[key], forecast.Start{In: time.Duration(h) * time.Hour})
		}
		b := f.Band(key)
		expect.Same(t, "Unexpected band", tc.want, fmt.Sprintf("%s %s %s", inHours(b.P10), inHours(b.P50), inHours(b.P90)))
	})
}
