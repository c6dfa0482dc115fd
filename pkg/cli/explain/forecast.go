// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	configapi "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib/scheduler"
)

// Preempted is a job that Kueue would stop for another.
type Preempted struct {
	// Job is "namespace/name".
	Job          string `json:"job"`
	ClusterQueue string `json:"clusterQueue"`
	Priority     int32  `json:"priority"`
	// Reason is that of Kueue's condition Preempted.
	Reason string `json:"reason"`
}

// forecast returns what Kueue's scheduler does with the job next, by its own code; nil where
// the user may not see what it goes by, and where it does not come to look.
func (f *Facts) forecast() *scheduler.Decision {
	if !f.forecasted {
		f.decision, f.forecasted = f.simulate(), true
	}
	return f.decision
}

func (f *Facts) simulate() *scheduler.Decision {
	if !f.seesQueues() || f.PriorityUnseen || f.queueName() == "" || len(f.PodSets) == 0 {
		return nil
	}
	decision := f.decide(f.fairSharing())
	if f.KueueUnseen == "" || decision == nil {
		return decision
	}
	// Fair sharing that is not seen is not off: what it would change is not known.
	if other := f.decide(&configapi.FairSharing{}); other == nil || other.Outcome != decision.Outcome || !slices.Equal(f.preempts(other), f.preempts(decision)) {
		return nil
	}
	return decision
}

// decide plays Kueue's cycles, with fair sharing or without, until the job is decided.
func (f *Facts) decide(sharing *configapi.FairSharing) *scheduler.Decision {
	if !f.Cluster.plays(len(f.Cluster.Pending())) {
		return nil
	}
	snapshot, err := f.Cluster.Snapshot(context.Background())
	if err != nil || snapshot.ClusterQueue(f.clusterQueueName()) == nil {
		return nil
	}
	me, pending := f.contenders()
	decision := scheduler.NewSimulation(snapshot, pending, f.Cluster.strict, sharing).Decide(context.Background(), me)
	return &decision
}

func (f *Facts) fairSharing() *configapi.FairSharing {
	if f.Kueue == nil {
		return nil
	}
	return f.Kueue.FairSharing
}

// seesQueues reports whether the user sees who has quota, and who waits for it.
func (f *Facts) seesQueues() bool {
	return !slices.ContainsFunc([]string{clusterQueues, localQueues, flavors, cohorts, workloads}, func(kind string) bool { return !f.Cluster.Saw(kind) })
}

func (c *Cluster) strict(name kueue.ClusterQueueReference) bool {
	cq := c.ClusterQueue(name)
	return cq != nil && cq.Spec.QueueingStrategy == kueue.StrictFIFO
}

// contenders returns the job's Workload, of a manifest the one that it would have, and all
// that wait with it.
func (f *Facts) contenders() (me *kueue.Workload, pending []scheduler.Pending) {
	for _, p := range f.Cluster.Pending() {
		mine := f.Workload != nil && p.Workload.UID == f.Workload.UID
		if !mine && !f.Cluster.InQueue(p.Workload, f.Now) {
			continue
		}
		wl := inventory.WithRequests(p.Workload)
		if mine {
			me = wl
		}
		pending = append(pending, scheduler.Pending{
			Workload: wl, ClusterQueue: p.ClusterQueue,
			Parked: !mine && scheduler.WhyWaiting(wl) != "" && !scheduler.IsPreempting(wl) && !f.Cluster.strict(p.ClusterQueue),
		})
	}
	if me == nil {
		me = inventory.WithRequests(f.wouldBe())
		pending = append(pending, scheduler.Pending{Workload: me, ClusterQueue: f.clusterQueueName()})
	}
	return me, pending
}

// wouldBe is the Workload that a manifest would get now.
func (f *Facts) wouldBe() *kueue.Workload {
	return &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.Job.Namespace, Name: f.Job.Name, CreationTimestamp: metav1.NewTime(f.Now)},
		Spec:       kueue.WorkloadSpec{QueueName: kueue.LocalQueueName(f.queueName()), Priority: &f.Priority, PodSets: f.PodSets},
	}
}

// foreseen tells of a decision that is not a refusal, for which there is more to say; nil
// otherwise.
func (f *Facts) foreseen(d *scheduler.Decision) *State {
	if d == nil {
		return nil
	}
	switch d.Outcome {
	case scheduler.Preempts:
		return &State{Reason: "Preempts", Message: "preempting " + f.victimsText(d)}
	case scheduler.Blocks:
		return f.behind(d)
	}
	return nil
}

func (f *Facts) behind(d *scheduler.Decision) *State {
	front := "others are"
	if d.Behind != nil {
		front = frontText(d.Behind) + " is"
	}
	if !f.Cluster.strict(f.clusterQueueName()) {
		return &State{Reason: "BehindOthers", Remedy: "wait" + f.above(d.Behind, "in front"),
			Message: fmt.Sprintf("%s before it in ClusterQueue %s and cannot start: others keep what it would take", front, f.clusterQueueName())}
	}
	return &State{Reason: "BehindOthers",
		Message: fmt.Sprintf("ClusterQueue %s is strictly first in, first out, and %s before it and cannot start", f.clusterQueueName(), front),
		Remedy:  fmt.Sprintf("wait, give the job a higher priority than the one in front, or set queueingStrategy of ClusterQueue %s to BestEffortFIFO", f.clusterQueueName()),
	}
}

func frontText(wl *kueue.Workload) string {
	return fmt.Sprintf("%s (priority %d)", nameOf(wl), kueuelib.Priority(wl))
}

// preempts lists whom a decision stops.
func (f *Facts) preempts(d *scheduler.Decision) []Preempted {
	if d == nil {
		return nil
	}
	var all []Preempted
	for _, v := range d.Victims {
		all = append(all, Preempted{
			Job: nameOf(v.Workload), ClusterQueue: string(v.ClusterQueue),
			Priority: kueuelib.Priority(v.Workload), Reason: v.Reason,
		})
	}
	return all
}

// victimsShown is how many of those that would be preempted a sentence names.
const victimsShown = 3

func (f *Facts) victimsText(d *scheduler.Decision) string {
	all := f.preempts(d)
	var parts []string
	for _, v := range all[:min(len(all), victimsShown)] {
		parts = append(parts, fmt.Sprintf("%s (priority %d, ClusterQueue %s: %s)", v.Job, v.Priority, v.ClusterQueue, preempts[v.Reason]))
	}
	text := strings.Join(parts, ", ")
	if n := len(all) - victimsShown; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text
}

// preempts says in words what the reasons of condition Preempted mean for one that is to be.
var preempts = map[string]string{
	kueue.InClusterQueueReason:                "lower in the same queue",
	kueue.InCohortReclamationReason:           "on quota lent to it",
	kueue.InCohortFairSharingReason:           "above its fair share",
	kueue.InCohortReclaimWhileBorrowingReason: "lower in the cohort",
}

// markPreempting marks the flavors that Kueue would make room in.
func markPreempting(verdicts []Verdict, d *scheduler.Decision) {
	if d == nil || d.Outcome != scheduler.Preempts {
		return
	}
	for i := range verdicts {
		v := &verdicts[i]
		psa := find(d.Admission.PodSetAssignments, func(psa *kueue.PodSetAssignment) bool { return string(psa.Name) == v.PodSet })
		v.Preempts = !v.Fits && psa != nil && slices.Contains(slices.Collect(maps.Values(psa.Flavors)), kueue.ResourceFlavorReference(v.Flavor))
	}
}
