// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	visibility "sigs.k8s.io/kueue/apis/visibility/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
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
	n := slices.IndexFunc(queue, func(o *kueue.Workload) bool { return o.UID == wl.UID })
	if n < 0 {
		return nil
	}
	return place(queue, n, n)
}

// place is that of the n-th of a queue, with the names of so many that are ahead.
func place(queue []*kueue.Workload, n, ahead int) *Position {
	position := &Position{Place: n + 1, Pending: len(queue), Source: Computed}
	for _, other := range slices.Backward(queue[max(0, n-ahead):n]) {
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

// Place returns the job's place among those that wait in its ClusterQueue, by Kueue's own answer where there is one; nil for
// a job that does not wait there, and where that cannot be seen.
func (f *Facts) Place() *Position {
	if f.Visible != nil || f.Workload == nil {
		return f.Visible
	}
	if !f.Cluster.Saw(workloads) || !f.Cluster.Saw(localQueues) {
		return nil
	}
	return PositionOf(f.Cluster, f.Workload, f.clusterQueueName(), f.Now)
}

// places tells every job its position, computed for all at once or, where the user may not
// see who else waits, as Kueue says it.
func (s *Snapshot) places(ctx context.Context, c client.Client) {
	if !s.Cluster.Saw(workloads) || !s.Cluster.Saw(localQueues) {
		s.visible(ctx, c)
		return
	}
	known := map[types.UID]*Position{}
	for _, queue := range queues(s.Cluster, s.Now) {
		for n, wl := range queue {
			known[wl.UID] = place(queue, n, 1)
		}
	}
	for _, f := range s.Facts {
		if f.Workload != nil {
			f.Visible = known[f.Workload.UID]
		}
	}
}

// visible asks Kueue, once for each LocalQueue in which a job waits. It is an option of Kueue:
// where it is not served, or not to this user, it is asked no more.
func (s *Snapshot) visible(ctx context.Context, c client.Client) {
	answers := map[types.NamespacedName][]visibility.PendingWorkload{}
	for _, f := range s.Facts {
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
		f.Visible = placeIn(answers[key], f)
	}
}

// waitsForQuota reports whether the job's Workload has a place in its queue.
func (f *Facts) waitsForQuota() bool {
	return f.Workload != nil && !kueuelib.IsFinished(f.Workload) && !kueuelib.HasQuotaReservation(f.Workload)
}

// placeIn is the job's place in Kueue's answer; nil where it is not there.
func placeIn(pending []visibility.PendingWorkload, f *Facts) *Position {
	mine := find(pending, func(p *visibility.PendingWorkload) bool { return p.Name == f.Workload.Name })
	if mine == nil {
		return nil
	}
	position := &Position{Place: int(mine.PositionInClusterQueue) + 1, Source: Visibility}
	if cq := f.clusterQueue(); cq != nil {
		position.Pending = int(cq.Status.PendingWorkloads)
	}
	return position
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

// aheadShown is how many of those in front are named.
const aheadShown = 3

func positionText(position *Position) string {
	text := ordinal(position.Place)
	if position.Pending > 0 {
		text += fmt.Sprintf(" of %d pending", position.Pending)
	}
	if ahead := position.Ahead; len(ahead) > 0 {
		text += ", behind " + firstOf(ahead, aheadShown)
	}
	if position.Source == Computed {
		return text + " (computed)"
	}
	return text + " (says Kueue)"
}

// firstOf names the first of several, and says how many more there are.
func firstOf(names []string, shown int) string {
	text := strings.Join(names[:min(len(names), shown)], ", ")
	if more := len(names) - shown; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
