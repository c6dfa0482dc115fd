// SPDX-License-Identifier: Apache-2.0

package shares

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
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
	// Place is 0 for one that Kueue does not look at.
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
	all, queues := admitted, map[client.ObjectKey]kueue.ClusterQueueReference{}
	for _, turn := range turns {
		key := client.ObjectKeyFromObject(turn.Workload)
		queues[key] = turn.ClusterQueue
		if !slices.ContainsFunc(admitted, func(wl *kueue.Workload) bool { return client.ObjectKeyFromObject(wl) == key }) {
			all = append(all, turn.Workload)
		}
	}
	waiting := places(all, queues)
	for n := range waiting[:len(admitted)] {
		w := &waiting[n]
		cq := at.ClusterQueue(kueue.ClusterQueueReference(w.ClusterQueue))
		w.GetsQuota = cq != nil && isChecked(cq, admitted[n])
		w.StartsNow = !w.GetsQuota
	}
	return append(waiting, leftOut(at, all)...), nil
}

// isChecked reports whether one of the admission checks of a ClusterQueue is for a flavor that a Workload gets.
func isChecked(cq *kueue.ClusterQueue, wl *kueue.Workload) bool {
	gets := sets.New[kueue.ResourceFlavorReference]()
	for _, podSet := range ptr.Deref(wl.Status.Admission, kueue.Admission{}).PodSetAssignments {
		gets.Insert(slices.Collect(maps.Values(podSet.Flavors))...)
	}
	return slices.ContainsFunc(inventory.Checks(cq), func(rule kueue.AdmissionCheckStrategyRule) bool {
		return len(rule.OnFlavors) == 0 || gets.HasAny(rule.OnFlavors...)
	})
}

// leftOut has those who wait and at whom Kueue does not look as things are, as those of a stopped queue.
func leftOut(at *outlook.Outlook, looked []*kueue.Workload) []Waiting {
	known := map[client.ObjectKey]bool{}
	for _, wl := range looked {
		known[client.ObjectKeyFromObject(wl)] = true
	}
	var out []Waiting
	for _, wl := range at.Pending() {
		if known[client.ObjectKeyFromObject(wl)] {
			continue
		}
		out = append(out, Waiting{Job: inventory.JobName(wl), ClusterQueue: string(at.ClusterQueueOf(wl)), Priority: kueuelib.Priority(wl),
			Why: "Kueue does not look at it: explain says why"})
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
	holding := map[client.ObjectKey]bool{}
	for n := range at.Workloads {
		holding[client.ObjectKeyFromObject(&at.Workloads[n])] = kueuelib.HasQuotaReservation(&at.Workloads[n])
	}
	var all []*kueue.Workload
	err := forecast.Play(ctx, q.World, q.Jobs(0), q.Settings, func(e forecast.Event) {
		if e.Kind == forecast.Started && !holding[e.Job] {
			all = append(all, e.Workload)
		}
	})
	return all, err
}

func places(all []*kueue.Workload, queues map[client.ObjectKey]kueue.ClusterQueueReference) []Waiting {
	out := make([]Waiting, 0, len(all))
	seen := map[kueue.ClusterQueueReference]*kueue.Workload{}
	for n, wl := range all {
		queue := queues[client.ObjectKeyFromObject(wl)]
		w := Waiting{Place: n + 1, Job: inventory.JobName(wl), ClusterQueue: string(queue), Priority: kueuelib.Priority(wl)}
		w.Why = why(wl, seen[queue])
		seen[queue] = wl
		out = append(out, w)
	}
	return out
}

// why compares with the one before in the same queue.
func why(wl, before *kueue.Workload) string {
	if before == nil {
		return "the first of its queue"
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

// ofNamespace is the order within each LocalQueue, as far as its users see it.
func ofNamespace(at *outlook.Outlook) []Waiting {
	all, queues := at.Pending(), map[client.ObjectKey]kueue.ClusterQueueReference{}
	for _, wl := range all {
		queues[client.ObjectKeyFromObject(wl)] = at.ClusterQueueOf(wl)
	}
	slices.SortStableFunc(all, scheduler.CompareInQueue)
	return places(all, queues)
}
