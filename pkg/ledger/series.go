// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"slices"
	"strings"

	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
)

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

// isPhase tells phases from outcomes.
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
