// SPDX-License-Identifier: Apache-2.0

package forecast

import (
	"math"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Band is when a Workload starts.
type Band struct {
	// P10, P50 and P90 are the times by which it has started in a tenth, half and nine tenths of the
	// futures; nil where it has not by the horizon.
	P10, P50, P90 *time.Duration
	// Late is the share of futures in which it does not start by the horizon.
	Late float64
	// Futures is how many were drawn.
	Futures int
	// After is after whose end it starts most often, and AfterShare in how many of the starts.
	After      client.ObjectKey
	AfterShare float64
}

// Band returns that of a Workload.
func (f *Futures) Band(key client.ObjectKey) Band {
	starts := f.Starts[key]
	b := Band{Futures: f.Drawn, Late: 1 - float64(len(starts))/float64(max(1, f.Drawn))}
	b.P10, b.P50, b.P90 = f.quantile(starts, 0.1), f.quantile(starts, 0.5), f.quantile(starts, 0.9)
	b.After, b.AfterShare = after(starts)
	return b
}

// quantile is the time by which a share of all futures has seen a start. Few futures are a sample: of n, the one
// at place k is later than the truth in k of n+1 cases. Between two places the one further out is taken, and where few have
// none so far out, the first or the last.
func (f *Futures) quantile(starts []Start, share float64) *time.Duration {
	place := share * float64(f.Drawn+1)
	n := min(int(math.Ceil(place)), f.Drawn) - 1
	if share < 0.5 {
		n = max(0, int(place)-1)
	}
	if n < 0 || n >= len(starts) {
		return nil
	}
	return &starts[n].In
}

func after(starts []Start) (client.ObjectKey, float64) {
	counts := map[client.ObjectKey]int{}
	var most client.ObjectKey
	for _, s := range starts {
		if s.After == (client.ObjectKey{}) {
			continue
		}
		counts[s.After]++
		if n, best := counts[s.After], counts[most]; n > best || n == best && s.After.String() < most.String() {
			most = s.After
		}
	}
	return most, float64(counts[most]) / float64(max(1, len(starts)))
}
