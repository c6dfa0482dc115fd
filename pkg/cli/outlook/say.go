// SPDX-License-Identifier: Apache-2.0

package outlook

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/pkg/forecast"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
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
	// Never is set where it does not start before somebody changes something, be it in an empty cluster.
	Never bool `json:"never,omitempty"`
	// QuotaOnly is set where it gets quota then, and its pods stay Pending.
	QuotaOnly bool `json:"quotaOnly,omitempty"`
	// Warnings are what the forecast does not go by.
	Warnings []string `json:"warnings,omitempty"`
	// Sources are what running times are known from, and of how many jobs.
	Sources map[forecast.Source]int `json:"sources,omitempty"`
}

// part is one of a cluster, and who waits there.
type part struct {
	*forecast.Question
	waiting map[client.ObjectKey]bool

	// names are those of all jobs, unknown of those whose running times nobody knows; sources are from what others are known.
	names   map[client.ObjectKey]string
	unknown []string
	// strangers came lately, and nothing is known of how long they run.
	strangers int
	sources   map[forecast.Source]int
}

// Of returns when Workloads start that wait; nothing of one whose queue leads nowhere. The futures of a part of the cluster
// answer for all that wait there, and the parts share the time.
func Of(ctx context.Context, q *forecast.Question, all ...*kueue.Workload) (map[client.ObjectKey]*Start, error) {
	var parts []*part
	for _, wl := range all {
		at := slices.IndexFunc(parts, func(p *part) bool {
			return inventory.Find(p.World.LocalQueues, wl.Namespace, string(wl.Spec.QueueName)) != nil
		})
		if at < 0 {
			about := q.About(wl)
			if about == nil {
				continue
			}
			at = len(parts)
			parts = append(parts, &part{
				Question: about, waiting: map[client.ObjectKey]bool{}, names: map[client.ObjectKey]string{}, sources: map[forecast.Source]int{},
			})
		}
		parts[at].waiting[client.ObjectKeyFromObject(wl)] = true
	}
	starts := map[client.ObjectKey]*Start{}
	for _, p := range parts {
		p.Time /= time.Duration(len(parts))
		if err := p.play(ctx, starts); err != nil {
			return nil, err
		}
	}
	return starts, nil
}

// play finds first who would not start even if nobody else was there: no future ends before the horizon that waits for them.
func (p *part) play(ctx context.Context, starts map[client.ObjectKey]*Start) error {
	alone, err := p.Alone(ctx, p.waiting)
	if err != nil {
		return err
	}
	for key := range p.waiting {
		if alone[key] {
			p.Until = append(p.Until, key)
		} else {
			starts[key] = &Start{Never: true, HorizonSeconds: int64(p.Horizon.Seconds())}
		}
	}
	if len(p.Until) == 0 {
		return nil
	}
	came := len(p.Arrivals)
	p.Arrivals = slices.DeleteFunc(p.Arrivals, func(a forecast.Arrival) bool { return a.Running.Source == forecast.Unknown })
	p.strangers = came - len(p.Arrivals)
	futures, err := forecast.Draw(ctx, p.Question)
	if err != nil {
		return err
	}
	for _, e := range p.Entrants {
		p.names[client.ObjectKeyFromObject(e.Workload)] = inventory.JobName(e.Workload)
		p.sources[e.Running.Source]++
	}
	if slices.ContainsFunc(p.Until, func(key client.ObjectKey) bool { return futures.Band(key).P50 == nil }) {
		if err := p.findUnknown(ctx); err != nil {
			return err
		}
	}
	for _, key := range p.Until {
		starts[key] = p.answer(futures, key)
	}
	return nil
}

// findUnknown finds those of which nobody knows how long they run, and that others may wait for: who never starts keeps
// nobody waiting.
func (p *part) findUnknown(ctx context.Context) error {
	waits := map[client.ObjectKey]bool{}
	for _, e := range p.Entrants {
		key := client.ObjectKeyFromObject(e.Workload)
		switch {
		case e.Running.Source != forecast.Unknown:
		case kueuelib.HasQuotaReservation(e.Workload):
			p.unknown = append(p.unknown, p.names[key])
		default:
			waits[key] = true
		}
	}
	alone, err := p.Alone(ctx, waits)
	for key := range waits {
		if alone[key] {
			p.unknown = append(p.unknown, p.names[key])
		}
	}
	slices.Sort(p.unknown)
	return err
}

func (p *part) answer(futures *forecast.Futures, key client.ObjectKey) *Start {
	b := futures.Band(key)
	s := &Start{
		P10: seconds(b.P10), P50: seconds(b.P50), P90: seconds(b.P90), Late: b.Late,
		HorizonSeconds: int64(p.Horizon.Seconds()), Futures: b.Futures, Sources: p.sources,
	}
	if futures.LeftOut > 0 {
		s.Warnings = []string{LeftOut(futures.LeftOut)}
	}
	if p.strangers > 0 {
		s.Warnings = append(s.Warnings, fmt.Sprintf("%s came lately of which nothing is known how long it runs, and none like these come here: --assume 4h takes it for them", show.Count(p.strangers, "job")))
	}
	if b.AfterShare >= often {
		s.After = p.names[b.After]
	}
	others := slices.DeleteFunc(slices.Clone(p.unknown), func(name string) bool { return name == p.names[key] })
	switch {
	case b.P50 != nil:
	case len(others) > 0:
		s.Unknown = fmt.Sprintf("nothing is known of how long %s run: --assume 4h takes it for them", show.Few(others, 3))
	case s.Futures == 0:
		s.Unknown = "the time was over before one future was played"
	}
	return s
}

// LeftOut is the warning of those whom Kueue takes nowhere.
func LeftOut(workloads int) string {
	return fmt.Sprintf("%s left out, whose queues are not there or have no quota for them", show.Count(int64(workloads), "Workload"))
}

// often is how often a job has to be the one before for it to be named.
const often = 0.25

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
		return "does not start before somebody changes something"
	case s.Unknown != "":
		return "unknown, because " + s.Unknown
	case s.P50 == nil:
		return fmt.Sprintf("in %.0f %% of the futures not within %s (%d futures)", 100*s.Late, Roughly(s.HorizonSeconds), s.Futures)
	}
	does := "starts"
	if s.QuotaOnly {
		does = "gets quota"
	}
	text := fmt.Sprintf("%s in about %s, between %s and %s (%s)", does, Roughly(*s.P50), Roughly(*s.P10), s.latest(), s.band())
	switch {
	case s.P90 != nil && *s.P90 < int64(time.Minute.Seconds()):
		text = fmt.Sprintf("%s within a minute (P90 of %d futures)", does, s.Futures)
	case s.narrow():
		text = fmt.Sprintf("%s in about %s (%s)", does, Roughly(*s.P50), s.band())
	}
	if s.After != "" {
		text += ", often after " + s.After + " ends"
	}
	if s.Late > 0 {
		text += fmt.Sprintf("; in %.0f %% of the futures not within %s", max(1, 100*s.Late), Roughly(s.HorizonSeconds))
	}
	return text
}

// band is what the earliest and the latest time are of: few futures have no tenth.
func (s Start) band() string {
	if s.Futures < 9 {
		return fmt.Sprintf("the first to the last of %s", show.Count(int64(s.Futures), "future"))
	}
	return fmt.Sprintf("P10 to P90 of %d futures", s.Futures)
}

// Short is the answer in a cell of a table.
func (s Start) Short() string {
	switch {
	case s.Never:
		return "never"
	case s.Unknown != "":
		return ""
	case s.P50 == nil:
		return "> " + Roughly(s.HorizonSeconds)
	case s.narrow():
		return Roughly(*s.P50)
	}
	return fmt.Sprintf("%s (%s-%s)", Roughly(*s.P50), Roughly(*s.P10), s.latest())
}

// narrow is a band whose ends are told alike.
func (s Start) narrow() bool { return Roughly(*s.P10) == s.latest() }

func (s Start) latest() string {
	if s.P90 == nil {
		return "more than " + Roughly(s.HorizonSeconds)
	}
	return Roughly(*s.P90)
}

// Roughly is a time in one unit, as exactly as a forecast can be.
func Roughly(seconds int64) string {
	d := time.Duration(seconds) * time.Second
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
