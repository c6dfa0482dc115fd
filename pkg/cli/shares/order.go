// SPDX-License-Identifier: Apache-2.0

package shares

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/outlook"
	"github.com/kueue-trainer/kueue-trainer/pkg/forecast"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib/scheduler"
)

// Waiting is somebody who waits.
type Waiting struct {
	// Place is 0 for one that Kueue does not look at, and where the user does not see who else waits.
	Place        int    `json:"place"`
	Job          string `json:"job"`
	ClusterQueue string `json:"clusterQueue,omitempty"`
	Priority     int32  `json:"priority"`
	// StartsNow is set for one that Kueue admits at once.
	StartsNow bool `json:"startsNow,omitempty"`
	// GetsQuota is set for one that gets quota at once, and then waits for admission checks.
	GetsQuota bool `json:"getsQuota,omitempty"`
	// Why is what puts it there.
	Why string `json:"why"`
}

// order has those first whom Kueue admits now, in the order in which it does; then the others in that in which
// it looks at them.
func order(ctx context.Context, at *outlook.Outlook) ([]Waiting, error) {
	admitted, err := admittedNow(ctx, at)
	if err != nil {
		return nil, err
	}
	contest, _ := at.Contest()
	turns, err := contest.Order(ctx)
	if err != nil {
		return nil, err
	}
	all, starts := admitted, keysOf(admitted)
	for _, turn := range turns {
		if !starts.Has(client.ObjectKeyFromObject(turn.Workload)) {
			all = append(all, turn.Workload)
		}
	}
	waiting := places(at, all)
	for n := range waiting[:len(admitted)] {
		w := &waiting[n]
		cq := at.ClusterQueue(kueue.ClusterQueueReference(w.ClusterQueue))
		w.GetsQuota = cq != nil && len(kueuelib.ChecksOf(admitted[n], cq)) > 0
		w.StartsNow = !w.GetsQuota
	}
	return append(waiting, leftOut(at, all)...), nil
}

func keysOf(all []*kueue.Workload) sets.Set[client.ObjectKey] {
	return sets.New(kueuelib.Map(all, func(wl **kueue.Workload) client.ObjectKey { return client.ObjectKeyFromObject(*wl) })...)
}

// leftOut has those who wait and at whom Kueue does not look as things are, as those of a stopped queue.
func leftOut(at *outlook.Outlook, looked []*kueue.Workload) []Waiting {
	known := keysOf(looked)
	var out []Waiting
	for _, wl := range at.Pending() {
		if !known.Has(client.ObjectKeyFromObject(wl)) {
			out = append(out, Waiting{Job: inventory.JobName(wl), ClusterQueue: string(at.ClusterQueueOf(wl)), Priority: kueuelib.Priority(wl),
				Why: "Kueue does not look at it: explain says why"})
		}
	}
	return out
}

// admittedNow has Kueue's scheduler play what it does now; nobody is where the user does not see what that takes. Who has
// quota and waits for admission checks is not among those who wait for quota, though the play lets checks take no time.
func admittedNow(ctx context.Context, at *outlook.Outlook) ([]*kueue.Workload, error) {
	if len(at.Unseen()) > 0 {
		return nil, nil
	}
	q, _ := at.Question()
	q.Horizon, q.Stopping, q.Checks = 0, time.Hour, 0
	var all []*kueue.Workload
	err := forecast.Play(ctx, q.World, q.Jobs(0), q.Settings, func(e forecast.Event) {
		if e.Kind == forecast.Started && !kueuelib.HasQuotaReservation(inventory.Find(at.Workloads, e.Job.Namespace, e.Job.Name)) {
			all = append(all, e.Workload)
		}
	})
	return all, err
}

func places(at *outlook.Outlook, all []*kueue.Workload) []Waiting {
	out := make([]Waiting, 0, len(all))
	seen := map[kueue.ClusterQueueReference]*kueue.Workload{}
	for n, wl := range all {
		queue := at.ClusterQueueOf(wl)
		out = append(out, Waiting{
			Place: n + 1, Job: inventory.JobName(wl), ClusterQueue: string(queue), Priority: kueuelib.Priority(wl), Why: why(wl, seen[queue]),
		})
		seen[queue] = wl
	}
	return out
}

const first = "the first of its queue"

func why(wl, before *kueue.Workload) string {
	if before == nil {
		return first
	}
	name := inventory.JobName(before)
	switch {
	case scheduler.CompareInQueue(before, wl) > 0:
		return name + " starts before it"
	case kueuelib.Priority(before) > kueuelib.Priority(wl):
		return "a lower priority than " + name
	}
	return fmt.Sprintf("the same priority as %s, and queued later", name)
}

// ofNamespace is the order within each queue, as far as its users see it. Nobody has a place: whom they do not see may be before.
func ofNamespace(at *outlook.Outlook) []Waiting {
	all := slices.DeleteFunc(at.Pending(), func(wl *kueue.Workload) bool { return !at.InQueue(wl, at.Now) })
	slices.SortStableFunc(all, scheduler.CompareInQueue)
	waiting := places(at, all)
	for n := range waiting {
		w := &waiting[n]
		if w.Place = 0; w.Why == first && !(at.Saw(inventory.LocalQueues) && at.Saw(inventory.Workloads)) {
			w.Why += " in this namespace"
		}
	}
	return append(waiting, leftOut(at, all)...)
}
