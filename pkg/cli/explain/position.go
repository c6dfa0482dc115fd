// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib/scheduler"
)

// Position is a Workload's place among those that wait in the same ClusterQueue.
type Position struct {
	// Place counts from 1.
	Place int `json:"place"`
	// Pending is how many wait.
	Pending int `json:"pending"`
	// Ahead is who waits in front, "namespace/name" of the jobs, the next one first.
	Ahead []string `json:"ahead,omitempty"`
	// Source tells where that comes from: Computed or Visibility.
	Source Source `json:"source"`
}

// next returns who is in front. Kueue's own answer says how many are, and not who.
func (p *Position) next() string {
	if len(p.Ahead) == 0 {
		return "another job"
	}
	return p.Ahead[0]
}

// Source is where a position comes from.
type Source string

const (
	// Computed is from Workloads, ordered by priority, then by the time that Kueue queues by.
	Computed Source = "computed"
	// Visibility is Kueue's own answer.
	Visibility Source = "visibility API"
)

// PositionOf computes a Workload's place among all that wait for the same ClusterQueue, or
// nil when it does not wait there.
func PositionOf(c *Cluster, wl *kueue.Workload, cq kueue.ClusterQueueReference, now time.Time) *Position {
	queue := queues(c, now)[cq]
	place := slices.IndexFunc(queue, func(o *kueue.Workload) bool { return o.UID == wl.UID })
	if place < 0 {
		return nil
	}
	position := &Position{Place: place + 1, Pending: len(queue), Source: Computed}
	for _, other := range slices.Backward(queue[:place]) {
		position.Ahead = append(position.Ahead, nameOf(other))
	}
	return position
}

// queues are all that wait, in their order: what Kueue does not look at, as in a stopped LocalQueue, has no place and is before
// nobody. Fair sharing between LocalQueues is not counted.
func queues(c *Cluster, now time.Time) map[kueue.ClusterQueueReference][]*kueue.Workload {
	all := map[kueue.ClusterQueueReference][]*kueue.Workload{}
	for _, p := range c.Pending() {
		if c.InQueue(p.Workload, now) {
			all[p.ClusterQueue] = append(all[p.ClusterQueue], p.Workload)
		}
	}
	for _, queue := range all {
		slices.SortFunc(queue, scheduler.CompareInQueue)
	}
	return all
}

// Turns returns those of all that wait, by the UIDs of their Workloads. In each cycle Kueue looks at the
// first of every ClusterQueue, without fair sharing at those that borrow last.
func (s *Snapshot) Turns(ctx context.Context) (map[types.UID]scheduler.Turn, error) {
	if len(s.Facts) == 0 {
		return nil, nil
	}
	f := s.Facts[0]
	if !f.seesQueues() {
		return nil, exit.With(exit.Unseen, errors.New("you may not see all who wait, and where: ask an admin for ClusterRole kueue-batch-admin-role"))
	}
	contest, _ := f.outlook().Contest()
	order, err := contest.Order(ctx)
	if err != nil {
		return nil, err
	}
	turns := map[types.UID]scheduler.Turn{}
	for _, turn := range order {
		turns[turn.Workload.UID] = turn
	}
	return turns, nil
}

// ordinal is a place in words: 1st, 2nd, 11th.
func ordinal(n int) string {
	suffix := "th"
	if n%100 < 11 || n%100 > 13 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return fmt.Sprintf("%d%s", n, suffix)
}
