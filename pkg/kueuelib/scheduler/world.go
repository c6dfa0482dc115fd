// SPDX-License-Identifier: Apache-2.0

// Package scheduler is the one place that imports Kueue's scheduler, its queues and its cache: who wants to know what is
// free, or what becomes of a Workload, asks the code that Kueue itself goes by.
//
// world.go is what Workloads compete for. player.go runs Kueue's scheduler on it, cycle by cycle (cycles.go), on a clock and
// a client of its own (virtual.go); consumption.go has what admission fair sharing goes by. contest.go asks it what it decides
// about those who wait, and in which order: look.go reads a cycle off its log, and decision.go makes decisions
// of that.
package scheduler

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	configapi "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/cache/scheduler"
	utilpod "sigs.k8s.io/kueue/pkg/util/pod"
	"sigs.k8s.io/kueue/pkg/util/tas"
	"sigs.k8s.io/kueue/pkg/workload"
	workloadfinish "sigs.k8s.io/kueue/pkg/workload/finish"
)

// World is what Workloads compete for.
type World struct {
	Flavors         []kueue.ResourceFlavor
	Topologies      []kueue.Topology
	AdmissionChecks []kueue.AdmissionCheck
	Cohorts         []kueue.Cohort
	ClusterQueues   []kueue.ClusterQueue
	LocalQueues     []kueue.LocalQueue
	Nodes           []corev1.Node
	// Pods are those that run. What Kueue has not placed takes room below a topology.
	Pods []corev1.Pod
	// Kueue is Kueue's configuration: what it counts, and how it shares fairly, by which only a Player goes.
	Kueue configapi.Configuration
}

// Snapshot returns what Kueue's scheduler would see, made by Kueue's own cache: quota that is left along the cohort
// tree, topology domains and their free capacity. A ClusterQueue that is stopped, or misses a flavor, topology or
// admission check, is in its InactiveClusterQueueSets and nowhere else. Workloads without an admission do not count.
// It fails when cohorts form a cycle; the error names one of them.
func (w *World) Snapshot(ctx context.Context, workloads []kueue.Workload) (*Snapshot, error) {
	cache, err := w.cache(ctx, &memory{}, workloads)
	if err != nil {
		return nil, err
	}
	return cache.Snapshot(quietly(ctx))
}

func (w *World) cache(ctx context.Context, c client.Client, workloads []kueue.Workload, options ...scheduler.Option) (*scheduler.Cache, error) {
	ctx = quietly(ctx)
	counts := ptr.Deref(w.Kueue.Resources, configapi.Resources{})
	options = append(slices.Clip(options), scheduler.WithExcludedResourcePrefixes(counts.ExcludeResourcePrefixes), scheduler.WithResourceTransformations(counts.Transformations))
	cache := scheduler.New(c, options...)
	for n := range w.Topologies {
		cache.AddOrUpdateTopology(logr.Discard(), &w.Topologies[n])
	}
	for n := range w.Flavors {
		cache.AddOrUpdateResourceFlavor(logr.Discard(), &w.Flavors[n])
	}
	for n := range w.AdmissionChecks {
		cache.AddOrUpdateAdmissionCheck(logr.Discard(), &w.AdmissionChecks[n])
	}
	for n := range w.Cohorts {
		if err := cache.AddOrUpdateCohort(&w.Cohorts[n]); err != nil {
			return nil, fmt.Errorf("Cohort %s: %w", w.Cohorts[n].Name, err)
		}
	}
	for n := range w.ClusterQueues {
		if err := cache.AddClusterQueue(ctx, &w.ClusterQueues[n]); err != nil {
			return nil, fmt.Errorf("ClusterQueue %s: %w", w.ClusterQueues[n].Name, err)
		}
	}
	for n := range workloads {
		// Kueue's cache trusts that quota comes with an admission; its webhook leaves older Workloads alone.
		if wl := &workloads[n]; wl.Status.Admission != nil {
			cache.AddOrUpdateWorkload(logr.Discard(), wl)
		}
	}
	for n := range w.Nodes {
		cache.TASCache().SyncNode(&w.Nodes[n])
	}
	for n := range w.Pods {
		if pod := &w.Pods[n]; TakesOfTopology(pod) {
			cache.TASCache().Update(pod, logr.Discard())
		}
	}
	return cache, nil
}

// Inactive returns why ClusterQueues admit nobody that are stopped or miss something, in Kueue's own words.
func (w *World) Inactive(ctx context.Context) (map[kueue.ClusterQueueReference]string, error) {
	cache, err := w.cache(ctx, &memory{}, nil)
	if err != nil {
		return nil, err
	}
	why := map[kueue.ClusterQueueReference]string{}
	for n := range w.ClusterQueues {
		name := kueue.ClusterQueueReference(w.ClusterQueues[n].Name)
		if status, _, message := cache.ClusterQueueReadiness(name); status != metav1.ConditionTrue {
			why[name] = message
		}
	}
	return why, nil
}

// Changed returns a world whose ClusterQueues say something else.
func (w *World) Changed(change func(*kueue.ClusterQueueSpec)) *World {
	other := *w
	other.ClusterQueues = make([]kueue.ClusterQueue, len(w.ClusterQueues))
	for n := range other.ClusterQueues {
		w.ClusterQueues[n].DeepCopyInto(&other.ClusterQueues[n])
		change(&other.ClusterQueues[n].Spec)
	}
	return &other
}

// setDefaults sets what an API server sets in a ClusterQueue by its CRD, and files and changes may leave out: Kueue's code
// takes nothing for none of its policies.
func setDefaults(spec *kueue.ClusterQueueSpec) {
	spec.QueueingStrategy = cmp.Or(spec.QueueingStrategy, kueue.BestEffortFIFO)
	spec.FlavorFungibility = cmp.Or(spec.FlavorFungibility, &kueue.FlavorFungibility{})
	spec.FlavorFungibility.WhenCanBorrow = cmp.Or(spec.FlavorFungibility.WhenCanBorrow, kueue.MayStopSearch)
	spec.FlavorFungibility.WhenCanPreempt = cmp.Or(spec.FlavorFungibility.WhenCanPreempt, kueue.TryNextFlavor)
	spec.Preemption = cmp.Or(spec.Preemption, &kueue.ClusterQueuePreemption{})
	spec.Preemption.WithinClusterQueue = cmp.Or(spec.Preemption.WithinClusterQueue, kueue.PreemptionPolicyNever)
	spec.Preemption.ReclaimWithinCohort = cmp.Or(spec.Preemption.ReclaimWithinCohort, kueue.PreemptionPolicyNever)
	spec.Preemption.BorrowWithinCohort = cmp.Or(spec.Preemption.BorrowWithinCohort, &kueue.BorrowWithinCohort{})
	spec.Preemption.BorrowWithinCohort.Policy = cmp.Or(spec.Preemption.BorrowWithinCohort.Policy, kueue.BorrowWithinCohortPolicyNever)
}

// TakesOfTopology reports whether a pod takes of a topology what Kueue has not given it.
func TakesOfTopology(pod *corev1.Pod) bool {
	return pod.Spec.NodeName != "" && !utilpod.IsTerminated(pod) && !tas.IsTAS(pod)
}

// PlacedOn reports whether a Workload has quota and, below a topology down to nodes, a place on one.
func PlacedOn(wl *kueue.Workload, node string) bool {
	return workload.HasQuotaReservation(wl) && !workloadfinish.IsFinished(wl) && tas.HasTASAssignmentOnNode(wl.Status.Admission, node)
}

type (
	// Snapshot is what a Cache holds at one time.
	Snapshot = scheduler.Snapshot
	// ClusterQueue is one of a Snapshot.
	ClusterQueue = scheduler.ClusterQueueSnapshot
	// TopologyRequests are those of a Workload, by flavor.
	TopologyRequests = scheduler.WorkloadTASRequests
)
