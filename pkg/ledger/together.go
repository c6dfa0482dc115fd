// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
)

// others is the value of a label for those that are not told apart.
const others = "(others)"

// together returns the series that a series is put together with; most stay what they are.
type together func(Series) Series

// withoutQueue is the series of all queues and users of a namespace.
func (s Series) withoutQueue() Series {
	if s.LocalQueue = others; s.User != "" {
		s.User = others
	}
	return s
}

// smaller returns what to put together, one after the other, until a checkpoint fits: the queues and users of
// the namespaces that have the most series, so that none takes the place of others, then namespaces that hold nothing: they
// come and go for as long as the account lasts.
func (c Saved) smaller() []together {
	series, held := map[string]int{}, sets.New[string]()
	for _, t := range c.totals() {
		series[t.Namespace]++
	}
	for _, h := range c.Open {
		held.Insert(h.Name.Namespace)
	}
	namespaces := slices.SortedFunc(maps.Keys(series), func(a, b string) int {
		return cmp.Or(cmp.Compare(series[b], series[a]), cmp.Compare(a, b))
	})
	var steps []together
	for _, n := range []int{1, 16, 256, len(namespaces)} {
		most := sets.New(namespaces[:min(n, len(namespaces))]...)
		steps = append(steps, func(s Series) Series {
			if !most.Has(s.Namespace) {
				return s
			}
			return s.withoutQueue()
		})
	}
	return append(steps, func(s Series) Series {
		if s = s.withoutQueue(); !held.Has(s.Namespace) {
			s.Namespace = others
		}
		return s
	})
}

// put puts series together. merged notes what came to a series by that: to Prometheus, it was not used then.
func put(of, merged map[slot]float64, which together) map[slot]float64 {
	sums := map[slot]float64{}
	for s, seconds := range of {
		to := slot{which(s.Series), s.is}
		if sums[to] += seconds; to != s {
			merged[to] += seconds
			delete(merged, s)
		}
	}
	return sums
}

func (c *Saved) put(which together) {
	merged := slots(c.Merged)
	c.set(put(slots(c.totals()), merged, which))
	c.Merged = sorted(merged)
}

// put puts series of the book together, those of holdings too, which go on as that.
func (b *Book) put(which together, now time.Time) {
	b.totals = put(b.totals, b.merged, which)
	for _, h := range b.open {
		h.seconds(b.began, now, func(s Series, phase string, seconds float64) {
			if to := which(s); to != s {
				b.merged[slot{to, phase}] += seconds
			}
		})
		h.put(which)
	}
	b.whole = wholes(b.merged)
	b.changes++
}

func (h *Holding) put(which together) {
	h.Past = sorted(put(slots(h.Past), map[slot]float64{}, which))
	for i := range h.Spans {
		h.Spans[i].Shares = kueuelib.Map(h.Spans[i].Shares, func(s *Share) Share { return Share{which(s.Series), s.Amount} })
	}
}

// wholes returns the namespaces whose queues and users were put together: they stay so, or a counter that
// Prometheus knows would restart.
func wholes(merged map[slot]float64) map[string]bool {
	out := map[string]bool{}
	for s := range merged {
		out[s.Namespace] = true
	}
	return out
}

// Series says whose quota it is, and of what. All of it is made by an admin, but for User, which
// stands in a label of the TrainJob.
type Series struct {
	ClusterQueue  string `json:"clusterQueue"`
	Namespace     string `json:"namespace"`
	LocalQueue    string `json:"localQueue"`
	Flavor        string `json:"flavor"`
	Resource      string `json:"resource"`
	PriorityClass string `json:"priorityClass,omitempty"`
	User          string `json:"user,omitempty"`
}

func (s Series) compare(o Series) int {
	return cmp.Or(
		strings.Compare(s.ClusterQueue, o.ClusterQueue), strings.Compare(s.Namespace, o.Namespace),
		strings.Compare(s.LocalQueue, o.LocalQueue), strings.Compare(s.Flavor, o.Flavor),
		strings.Compare(s.Resource, o.Resource), strings.Compare(s.PriorityClass, o.PriorityClass),
		strings.Compare(s.User, o.User))
}

// slot is a series and the phase or outcome of what it had.
type slot struct {
	Series
	is string
}

// values returns the values of its labels, in the order of the contract.
func (s slot) values() []string {
	return []string{s.ClusterQueue, s.Namespace, s.LocalQueue, s.Flavor, s.Resource, s.PriorityClass, s.User, s.is}
}

func isPhase(is string) bool { return slices.Contains(phases, is) }

var (
	phases   = []string{metrics.PhaseWaiting, metrics.PhaseRunning, metrics.PhaseStopping}
	outcomes = []string{metrics.OutcomeUseful, metrics.OutcomeLost, metrics.OutcomeFailed, metrics.OutcomeDeleted}
)

// Total is how many resource seconds there were of something: of a phase, or of runs with an outcome.
type Total struct {
	Series
	Is      string  `json:"is"`
	Seconds float64 `json:"seconds"`
}

func sorted(of map[slot]float64) []Total {
	out := make([]Total, 0, len(of))
	for s, seconds := range of {
		out = append(out, Total{s.Series, s.is, seconds})
	}
	slices.SortFunc(out, func(a, b Total) int { return cmp.Or(a.compare(b.Series), strings.Compare(a.Is, b.Is)) })
	return out
}

func slots(of []Total) map[slot]float64 {
	out := map[slot]float64{}
	for _, t := range of {
		out[slot{t.Series, t.Is}] += t.Seconds
	}
	return out
}
