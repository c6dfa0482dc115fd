// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	visibility "sigs.k8s.io/kueue/apis/visibility/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib/scheduler"
)

// Position is a Workload's place among those that wait in the same ClusterQueue.
type Position struct {
	Place   int      `json:"place"`             // counts from 1
	Pending int      `json:"pending,omitempty"` // how many wait; 0 where the ClusterQueue, which tells, may not be read
	Ahead   []string `json:"ahead,omitempty"`   // who waits in front, "namespace/name" of the jobs, the next one first
	Source  Source   `json:"source"`            // where that comes from: Computed or Visibility
}

// Source is where a position comes from.
type Source string

// The sources of positions.
const (
	Computed   Source = "computed"       // from Workloads, ordered by priority, then by the time that Kueue queues by
	Visibility Source = "visibility API" // Kueue's own answer
)

// Place returns the job's place in its ClusterQueue, Kueue's own answer first; nil where it does not wait, or that cannot be seen.
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

// placeOf returns how many are before a Workload that waits. What Kueue does not look at has no place, and is before nobody.
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

// askPlaces asks Kueue once for each LocalQueue in which a job waits, and no more where it does not answer.
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
		pending := ptr.Deref(f.clusterQueue(), kueue.ClusterQueue{}).Status.PendingWorkloads
		f.Visible = &Position{Place: int(mine.PositionInClusterQueue) + 1, Pending: int(pending), Source: Visibility}
	}
}

// waitsForQuota reports whether the job's Workload has a place in its queue.
func (f *Facts) waitsForQuota() bool {
	return f.Workload != nil && !kueuelib.IsFinished(f.Workload) && !kueuelib.HasQuotaReservation(f.Workload)
}

// Turns returns those of all that wait, by the UIDs of their Workloads: in each cycle the first of every ClusterQueue has one.
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
	suffix := map[int]string{1: "st", 2: "nd", 3: "rd"}[n%10]
	if n%100 >= 11 && n%100 <= 13 {
		suffix = "th"
	}
	return fmt.Sprintf("%d%s", n, cmp.Or(suffix, "th"))
}

// text is the place, of all that wait as far as their number is known.
func (p *Position) text() string {
	if p.Pending == 0 {
		return ordinal(p.Place) + " in its ClusterQueue"
	}
	return fmt.Sprintf("%s of %d pending", ordinal(p.Place), p.Pending)
}

func positionText(position *Position) string {
	text := position.text()
	if ahead := position.Ahead; len(ahead) > 0 {
		text += ", behind " + show.Few(ahead, 3)
	}
	if position.Source == Computed {
		return text + " (computed)"
	}
	return text + " (says Kueue)"
}

var errNoClass = errors.New("its priority class does not exist")

// classMissing tells of a WorkloadPriorityClass that is not there, and that the Workload does not have already; nil for none.
func (f *Facts) classMissing() *State {
	name := f.Job.Labels[kueueconstants.WorkloadPriorityClassLabel]
	charged := f.Workload != nil && kueuelib.HasWorkloadPriorityClass(f.Workload) && f.Workload.Spec.PriorityClassRef.Name == name
	if name == "" || charged || f.Classes == nil || f.class(name) != nil {
		return nil
	}
	return &State{Reason: jobevents.ReasonNoPriority, Stuck: true, Cause: name,
		Message: fmt.Sprintf("it names WorkloadPriorityClass %s, which does not exist", name),
		Remedy:  "create it, or label the job with one that exists: " + f.otherClasses()}
}

// withPriority returns what the facts would be if a job that waits had another WorkloadPriorityClass.
func (f *Facts) withPriority(ctx context.Context, name string) (*Facts, error) {
	if f.Classes == nil {
		return nil, exit.With(exit.Unseen, errors.New("you may not list WorkloadPriorityClasses: ask an admin to run this command"))
	}
	class := f.class(name)
	if class == nil {
		return nil, fmt.Errorf("there is no WorkloadPriorityClass %s: name another: %s", name, f.otherClasses())
	}
	if s := StateOf(f); s.Phase != Waiting && s.Phase != Unqueued {
		return nil, fmt.Errorf("TrainJob %s/%s does not wait for quota (%s): --priority tells when one that does would get it", f.Job.Namespace, f.Job.Name, s.Phase)
	}
	other := *f
	other.Job = f.Job.DeepCopy()
	metav1.SetMetaDataLabel(&other.Job.ObjectMeta, kueueconstants.WorkloadPriorityClassLabel, name)
	other.Supposed, other.Priority, other.Visible = name, class.Value, nil
	i := *f.Cluster.Inventory
	if f.Workload != nil {
		other.Workload = f.Workload.DeepCopy()
		other.Workload.Spec.Priority, other.Workload.Spec.PriorityClassRef = &class.Value, kueue.NewWorkloadPriorityClassRef(name)
		i.Workloads = slices.Clone(i.Workloads)
		for n := range i.Workloads {
			if i.Workloads[n].UID == other.Workload.UID {
				i.Workloads[n] = *other.Workload
			}
		}
	}
	var err error
	other.Cluster, err = NewCluster(ctx, &i)
	return &other, err
}

// above says that a higher priority would bring the job past another one; empty where it has that already.
func (f *Facts) above(other *kueue.Workload, where string) string {
	if other != nil && kueuelib.Priority(other) < kueuelib.Priority(f.workload()) {
		return ""
	}
	return ", or give the job a higher priority than the one " + where
}

// raise says that a higher priority would help; empty where nobody is stopped for it, and nobody waits in front.
func (f *Facts) raise() string {
	const label = ", or raise the job's priority (label " + kueueconstants.WorkloadPriorityClassLabel + ")"
	p := ptr.Deref(f.clusterQueue().Spec.Preemption, kueue.ClusterQueuePreemption{})
	stops := !slices.Contains([]kueue.PreemptionPolicy{"", kueue.PreemptionPolicyNever}, p.WithinClusterQueue) ||
		p.ReclaimWithinCohort == kueue.PreemptionPolicyLowerPriority ||
		ptr.Deref(p.BorrowWithinCohort, kueue.BorrowWithinCohort{}).Policy == kueue.BorrowWithinCohortPolicyLowerPriority
	switch {
	case stops:
		return label
	case f.outranked():
		return label + " above that of those in front"
	}
	return ""
}

// outranked reports whether others wait in front of the job, as far as that can be seen.
func (f *Facts) outranked() bool {
	if f.Workload != nil {
		p := f.Place()
		return p != nil && p.Place > 1
	}
	return slices.ContainsFunc(f.Cluster.Pending(), func(wl *kueue.Workload) bool {
		return f.Cluster.ClusterQueueOf(wl) == f.clusterQueueName() && f.Cluster.InQueue(wl, f.Now) && kueuelib.Priority(wl) >= f.Priority
	})
}

func (f *Facts) class(name string) *kueue.WorkloadPriorityClass {
	return inventory.Find(f.Classes.Items, "", name)
}

func (f *Facts) otherClasses() string {
	return cmp.Or(strings.Join(inventory.Names(inventory.Objects(f.Classes.Items)), ", "), "there is none")
}
