// SPDX-License-Identifier: Apache-2.0

package outlook

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/forecast"
)

// Start says when a Workload starts. Its JSON is for scripts: names stay, new ones may come.
type Start struct {
	// P10, P50 and P90 are the seconds within which it has started in a tenth, half and nine tenths of the futures.
	// One is missing where it has not by then.
	P10 *int64 `json:"p10Seconds,omitempty"`
	P50 *int64 `json:"p50Seconds,omitempty"`
	P90 *int64 `json:"p90Seconds,omitempty"`
	// Late is the share of the futures in which it does not start in so many seconds.
	Late           float64 `json:"late"`
	HorizonSeconds int64   `json:"horizonSeconds"`
	Futures        int     `json:"futures"`
	// After is the job after whose end it starts most often.
	After string `json:"after,omitempty"`
	// Unknown is why there is no answer.
	Unknown string `json:"unknown,omitempty"`
	// Never is set where it does not start even in an empty cluster.
	Never bool `json:"never,omitempty"`
	// Warnings are what the forecast does not go by.
	Warnings []string `json:"warnings,omitempty"`
	// Sources are what running times are known from, and of how many jobs.
	Sources map[forecast.Source]int `json:"sources,omitempty"`
}

// Of returns when a Workload starts, by the futures of what matters to it.
func Of(ctx context.Context, q *forecast.Question, wl *kueue.Workload) (Start, error) {
	q, futures, err := Ask(ctx, q, wl)
	if err != nil {
		return Start{}, err
	}
	return answer(ctx, q, futures, wl)
}

// OfAll returns when Workloads start that wait in the same part of a cluster, by the same futures.
func OfAll(ctx context.Context, q *forecast.Question, all []*kueue.Workload) (map[client.ObjectKey]Start, error) {
	together := *q
	together.Until = nil
	for _, wl := range all {
		together.Until = append(together.Until, client.ObjectKeyFromObject(wl))
	}
	futures, err := forecast.Draw(ctx, &together)
	if err != nil {
		return nil, err
	}
	starts := map[client.ObjectKey]Start{}
	for _, wl := range all {
		if starts[client.ObjectKeyFromObject(wl)], err = answer(ctx, &together, futures, wl); err != nil {
			return nil, err
		}
	}
	return starts, nil
}

func answer(ctx context.Context, q *forecast.Question, futures *forecast.Futures, wl *kueue.Workload) (Start, error) {
	key := client.ObjectKeyFromObject(wl)
	b := futures.Band(key, q.Horizon)
	s := Start{
		P10: seconds(b.P10), P50: seconds(b.P50), P90: seconds(b.P90), Late: b.Late,
		HorizonSeconds: int64(q.Horizon.Seconds()), Futures: b.Futures, Sources: map[forecast.Source]int{},
	}
	var unknown []string
	for _, e := range q.Entrants {
		if client.ObjectKeyFromObject(e.Workload) == b.After && b.AfterShare >= mostly {
			s.After = inventory.JobName(e.Workload)
		}
		s.Sources[e.Running.Source]++
		if e.Running.Source == forecast.Unknown && client.ObjectKeyFromObject(e.Workload) != key {
			unknown = append(unknown, inventory.JobName(e.Workload))
		}
	}
	if b.P90 != nil {
		return s, nil
	}
	var err error
	switch s.Never, err = never(ctx, q, wl); {
	case err != nil || s.Never:
	case len(unknown) > 0:
		s.Unknown = fmt.Sprintf("nothing is known of how long %s run: --assume 4h takes it for them", listed(unknown))
	}
	return s, err
}

// mostly is how often a job has to be the one before for it to be named.
const mostly = 0.25

// never reports whether a Workload does not start though nobody else is there.
func never(ctx context.Context, q *forecast.Question, wl *kueue.Workload) (bool, error) {
	alone := *q
	alone.Entrants = slices.DeleteFunc(slices.Clone(q.Entrants), func(e forecast.Entrant) bool { return e.Workload.UID != wl.UID || e.Workload.Name != wl.Name })
	alone.Arrivals, alone.Futures = forecast.Arrivals{}, 1
	futures, err := forecast.Draw(ctx, &alone)
	return err == nil && len(futures.Starts) == 0, err
}

func listed(names []string) string {
	const shown = 3
	slices.Sort(names)
	text := strings.Join(names[:min(shown, len(names))], ", ")
	if more := len(names) - shown; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

func seconds(d *time.Duration) *int64 {
	if d == nil {
		return nil
	}
	return ptr.To(int64(d.Seconds()))
}

// String is the answer in a sentence.
func (s Start) String() string {
	switch {
	case s.Never:
		return "does not start before somebody changes something: it would not even if nobody else was there"
	case s.Unknown != "":
		return "unknown, because " + s.Unknown
	case s.P50 == nil:
		return fmt.Sprintf("in %.0f %% of the futures not within %s (%d futures)", 100*s.Late, Roughly(ptr.To(s.HorizonSeconds)), s.Futures)
	}
	text := fmt.Sprintf("starts in about %s, between %s and %s (P10 to P90 of %d futures)", Roughly(s.P50), Roughly(s.P10), s.latest(), s.Futures)
	if s.P90 != nil && *s.P90 < int64(time.Minute.Seconds()) {
		text = fmt.Sprintf("starts within a minute (P90 of %d futures)", s.Futures)
	}
	if s.After != "" {
		text += ", most likely after " + s.After + " ends"
	}
	if s.Late > 0 {
		text += fmt.Sprintf("; in %.0f %% of the futures not within %s", max(1, 100*s.Late), Roughly(ptr.To(s.HorizonSeconds)))
	}
	return text
}

// Short is the answer in a cell of a table.
func (s Start) Short() string {
	switch {
	case s.Never:
		return "never"
	case s.Unknown != "" || s.P50 == nil:
		return ""
	}
	return fmt.Sprintf("%s (%s-%s)", Roughly(s.P50), Roughly(s.P10), s.latest())
}

func (s Start) latest() string {
	if s.P90 == nil {
		return "more than " + Roughly(ptr.To(s.HorizonSeconds))
	}
	return Roughly(s.P90)
}

// Roughly is a time in one unit, as exactly as a forecast can be.
func Roughly(seconds *int64) string {
	if seconds == nil {
		return ""
	}
	d := time.Duration(*seconds) * time.Second
	switch {
	case d < time.Minute:
		return "0 min"
	case d < 100*time.Minute:
		return fmt.Sprintf("%.0f min", d.Minutes())
	case d < 48*time.Hour:
		return fmt.Sprintf("%.0f h", d.Hours())
	}
	return fmt.Sprintf("%.0f days", d.Hours()/24)
}
