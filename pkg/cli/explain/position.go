// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	visibility "sigs.k8s.io/kueue/apis/visibility/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
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

// Source is where a position comes from.
type Source string

const (
	// Computed is from Workloads, ordered by priority, then by the time that Kueue queues by.
	Computed Source = "computed"
	// Visibility is Kueue's own answer.
	Visibility Source = "visibility API"
)

// Place returns the job's place among those that wait in its ClusterQueue, by Kueue's own answer where there is one; nil for
// a job that does not wait there, and where that cannot be seen.
func (f *Facts) Place() *Position {
	if f.Visible != nil || f.Workload == nil || !f.Cluster.seesLines() {
		return f.Visible
	}
	n, waits := f.Cluster.placeOf(f.Workload, f.Now)
	if !waits {
		return nil
	}
	line := f.Cluster.lines[f.clusterQueueName()]
	named := line[:n]
	if len(f.Cluster.asked) > 1 {
		named = line[max(0, n-1):n] // Of many jobs each has the next one named.
	}
	position := &Position{Place: n + 1, Pending: len(line), Source: Computed}
	for _, other := range slices.Backward(named) {
		position.Ahead = append(position.Ahead, inventory.JobName(other))
	}
	return position
}

func (c *Cluster) seesLines() bool { return c.Saw(inventory.Workloads) && c.Saw(inventory.LocalQueues) }

// placeOf returns how many are before a Workload that waits. What Kueue does not look at, as in a stopped LocalQueue, has no
// place and is before nobody. Fair sharing between LocalQueues is not counted.
func (c *Cluster) placeOf(wl *kueue.Workload, now time.Time) (n int, waits bool) {
	if c.places == nil {
		c.lines, c.places = map[kueue.ClusterQueueReference][]*kueue.Workload{}, map[types.UID]int{}
		for _, wl := range c.Pending() {
			if cq := c.ClusterQueueOf(wl); c.InQueue(wl, now) {
				c.lines[cq] = append(c.lines[cq], wl)
			}
		}
		for _, line := range c.lines {
			slices.SortFunc(line, scheduler.CompareInQueue)
			for n, wl := range line {
				c.places[wl.UID] = n
			}
		}
	}
	n, waits = c.places[wl.UID]
	return n, waits
}

// askPlaces asks Kueue, once for each LocalQueue in which a job waits. It is an option of Kueue:
// where it is not served, or not to this user, it is asked no more.
func askPlaces(ctx context.Context, c client.Client, all ...*Facts) {
	answers := map[types.NamespacedName][]visibility.PendingWorkload{}
	for _, f := range all {
		queue := f.localQueue()
		if queue == nil || !f.waitsForQuota() {
			continue
		}
		key := client.ObjectKeyFromObject(queue)
		if _, asked := answers[key]; !asked {
			var summary visibility.PendingWorkloadsSummary
			of := &visibility.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
			err := c.SubResource("pendingworkloads").Get(ctx, of, &summary)
			if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
				return
			}
			answers[key] = summary.Items // None where it fails, which is no reason to tell nothing.
		}
		mine := find(answers[key], func(p *visibility.PendingWorkload) bool { return p.Name == f.Workload.Name })
		if mine == nil {
			continue
		}
		f.Visible = &Position{Place: int(mine.PositionInClusterQueue) + 1, Source: Visibility}
		if cq := f.clusterQueue(); cq != nil {
			f.Visible.Pending = int(cq.Status.PendingWorkloads)
		}
	}
}

// waitsForQuota reports whether the job's Workload has a place in its queue.
func (f *Facts) waitsForQuota() bool {
	return f.Workload != nil && !kueuelib.IsFinished(f.Workload) && !kueuelib.HasQuotaReservation(f.Workload)
}

// Turns returns those of all that wait, by the UIDs of their Workloads. In each cycle Kueue looks at the
// first of every ClusterQueue, without fair sharing at those that borrow last.
func (s *Snapshot) Turns(ctx context.Context) (map[types.UID]scheduler.Turn, error) {
	if len(s.Facts) == 0 {
		return nil, nil
	}
	f := s.Facts[0]
	if !f.seesQueues() {
		return nil, exit.With(exit.Unseen, errors.New("you may not see all who wait, and where: ask an admin for ClusterRole kueue-trainer-queues-viewer"))
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

func positionText(position *Position) string {
	text := ordinal(position.Place)
	if position.Pending > 0 {
		text += fmt.Sprintf(" of %d pending", position.Pending)
	}
	if ahead := position.Ahead; len(ahead) > 0 {
		text += ", behind " + show.Few(ahead, 3)
	}
	if position.Source == Computed {
		return text + " (computed)"
	}
	return text + " (says Kueue)"
}
