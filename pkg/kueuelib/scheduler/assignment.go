// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
	configapi "sigs.k8s.io/kueue/apis/config/v1beta2"
	"sigs.k8s.io/kueue/pkg/cache/scheduler"
	"sigs.k8s.io/kueue/pkg/resources"
	"sigs.k8s.io/kueue/pkg/scheduler/flavorassigner"
	"sigs.k8s.io/kueue/pkg/scheduler/preemption"
	"sigs.k8s.io/kueue/pkg/scheduler/preemption/fairsharing"
	"sigs.k8s.io/kueue/pkg/workload"
)

// assigner finds flavors, and Workloads to preempt, in the way of Kueue's scheduler.
type assigner struct {
	snapshot  *Snapshot
	preemptor *preemption.Preemptor
	fair      bool
}

func newAssigner(snapshot *Snapshot, fairSharing *configapi.FairSharing) *assigner {
	return &assigner{
		snapshot:  snapshot,
		preemptor: preemption.New(nil, ordering, nil, fairSharing, false, clock.RealClock{}, nil, nil, nil),
		fair:      fairsharing.Enabled(fairSharing),
	}
}

// attempt is what a Workload would have with as many pods as were asked for.
type attempt struct {
	assignment flavorassigner.Assignment
	targets    []*preemption.Target
}

// assign returns flavors for a Workload in its ClusterQueue as the snapshot is, and who has
// to go for it. One that may have fewer pods gets the most that there is room for.
func (a *assigner) assign(ctx context.Context, wl *workload.Info, cycle int64) (flavorassigner.Assignment, []*preemption.Target) {
	cq := a.snapshot.ClusterQueue(wl.ClusterQueue)
	assigner := flavorassigner.New(wl, cq, a.snapshot.ResourceFlavors, a.fair,
		preemption.NewOracle(a.preemptor, a.snapshot), nil, "", resources.NewResourceFormatter(), cycle)
	try := func(counts []int32) (attempt, bool) {
		t := attempt{assignment: assigner.Assign(ctx, counts)}
		if t.assignment.RepresentativeMode() == flavorassigner.Preempt {
			t.targets = a.preemptor.GetTargets(ctx, *wl, t.assignment, a.snapshot)
		}
		return t, t.assignment.RepresentativeMode() == flavorassigner.Fit || len(t.targets) > 0
	}
	found, ok := try(nil)
	if !ok && wl.CanBePartiallyAdmitted() {
		if fewer, ok := flavorassigner.NewPodSetReducer(wl.Obj.Spec.PodSets, try).Search(); ok {
			found = fewer
		}
	}
	tas := workload.IsExplicitlyRequestingTAS(wl.Obj.Spec.PodSets...) || cq.IsTASOnly()
	if tas && found.assignment.RepresentativeMode() == flavorassigner.Preempt {
		a.place(ctx, wl, &found.assignment, found.targets)
	}
	return found.assignment, found.targets
}

// place finds room below a topology as if the targets had gone; without any, what an empty
// cluster would have is reserved.
func (a *assigner) place(ctx context.Context, wl *workload.Info, assignment *flavorassigner.Assignment, targets []*preemption.Target) {
	cq := a.snapshot.ClusterQueue(wl.ClusterQueue)
	revert := a.snapshot.SimulateWorkloadUsageRemoval(infosOf(targets))
	defer revert()
	result := cq.FindTopologyAssignmentsForWorkload(ctx, assignment.WorkloadsTopologyRequests(logr.Discard(), wl, cq),
		scheduler.WithWorkload(wl.Obj), scheduler.WithSimulateEmpty(len(targets) == 0))
	assignment.UpdateForTASResult(logr.Discard(), cq, wl, result)
}

// usage is what an assignment takes of quota and topology.
func (a *assigner) usage(wl *workload.Info, assignment *flavorassigner.Assignment, quota resources.FlavorResourceQuantities) workload.Usage {
	cq := a.snapshot.ClusterQueue(wl.ClusterQueue)
	return workload.Usage{Quota: quota, TAS: assignment.ComputeTASNetUsage(logr.Discard(), cq, wl, nil)}
}

// reservation is what a Workload that may preempt nobody keeps others in its cohort from
// taking before it: no more than its ClusterQueue may ever have.
func (a *assigner) reservation(wl *workload.Info, assignment *flavorassigner.Assignment) workload.Usage {
	cq := a.snapshot.ClusterQueue(wl.ClusterQueue)
	reserved := resources.FlavorResourceQuantities{}
	for at, wanted := range assignment.Usage.Quota {
		quota, used := cq.QuotaFor(at), cq.ResourceNode.Usage[at]
		switch {
		case assignment.Borrowing == 0:
			reserved[at] = resources.MaxAmount(resources.NewAmount(0), resources.MinAmount(wanted, quota.Nominal.Sub(used)))
		case quota.BorrowingLimit == nil:
			reserved[at] = wanted
		default:
			reserved[at] = resources.MinAmount(wanted, quota.Nominal.Add(*quota.BorrowingLimit).Sub(used))
		}
	}
	return a.usage(wl, assignment, reserved)
}

func infosOf(targets []*preemption.Target) []*workload.Info {
	infos := make([]*workload.Info, 0, len(targets))
	for _, t := range targets {
		infos = append(infos, t.WorkloadInfo)
	}
	return infos
}
