// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib/scheduler"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestTurns(t *testing.T) {
	shares := func(s *scene) {
		borrower(1)(s)
		s.inventory.ClusterQueues = append(s.inventory.ClusterQueues, clusterQueue("alone", "", quota("a100", "8")))
		s.inventory.LocalQueues = append(s.inventory.LocalQueues, localQueue("alone", "alone"))
		for _, other := range []struct{ job, queue string }{{"guest", "guests"}, {"lonely", "alone"}} {
			s.inventory.Workloads = append(s.inventory.Workloads, *waitingWorkload(other.job, other.queue, 1, minutesAgo(60)))
		}
	}
	s := newScene(shares, pending("second", 0, minutesAgo(1)))
	turns := expect.Must((&Snapshot{Facts: []*Facts{s.facts(t)}}).Turns(t.Context()))(t)
	want := map[types.UID]scheduler.Turn{
		"llm-workload": {Cohort: "all", Place: 1}, "guest-workload": {Cohort: "all", Place: 2}, "second-workload": {Cohort: "all", Place: 3},
		"lonely-workload": {Place: 1},
	}
	expect.Same(t, "Unexpected turns", want, turns, cmpopts.IgnoreFields(scheduler.Turn{}, "Workload", "ClusterQueue"))

	_, err := (&Snapshot{Facts: []*Facts{newScene(unseenKind(workloads)).facts(t)}}).Turns(t.Context())
	expect.That(t, err != nil, "Turns among those that may not be seen")
}
