// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	configapi "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	qcache "sigs.k8s.io/kueue/pkg/cache/queue"
	schdcache "sigs.k8s.io/kueue/pkg/cache/scheduler"
	"sigs.k8s.io/kueue/pkg/scheduler"
	"sigs.k8s.io/kueue/pkg/scheduler/preemption/expectations"
	"sigs.k8s.io/kueue/pkg/scheduler/preemption/fairsharing"
	"sigs.k8s.io/kueue/pkg/util/routine"
	"sigs.k8s.io/kueue/pkg/workload"
	workloadevict "sigs.k8s.io/kueue/pkg/workload/evict"
)

// requeueAfter is how long Kueue collects what may give others room before it has them looked at again.
const requeueAfter = time.Second

// Move is something that happened to a Workload.
type Move string

// The moves.
const (
	// Reserved: it got quota, and waits for admission checks or its topology.
	Reserved Move = "Reserved"
	// Admitted: it may run.
	Admitted Move = "Admitted"
	// Evicted: it has to stop, and keeps its quota until Stopped is called.
	Evicted Move = "Evicted"
)

// Moved is a Workload after a Move. It is not to be changed.
type Moved struct {
	Move
	Workload *kueue.Workload
}

// Player runs Kueue's own scheduler, with its queues, its cache and its preemption, without a cluster
// and at a time that the caller says. It is for one goroutine; others may have players of their own.
type Player struct {
	clock      *virtualClock
	cycleClock *cycleClock
	memory     *memory
	cache      *schdcache.Cache
	queues     *qcache.Manager
	requeuer   interface{ ProcessRequeues(context.Context) int }
	checks     map[kueue.ClusterQueueReference][]kueue.AdmissionCheckStrategyRule
	kueue      *scheduler.Scheduler
	// consumed is what admission fair sharing goes by.
	consumed consumption
	// requeueAt is when those are looked at again who were in vain; zero where nobody is.
	requeueAt time.Time
	// patience is how many cycles in a row may end without news before there are none to come.
	patience int
}

// inline has Kueue admit in the cycle and not beside it.
type inline struct{}

func (inline) Run(f func()) { f() }

var admitInline = sync.OnceFunc(func() { routine.DefaultWrapper = inline{} })

// NewPlayer returns a Player for a world at a time, without Workloads. Kueue's feature gates are those of this
// process. Namespaces are not looked at: a Workload that its ClusterQueue refuses for the
// labels of its namespace is not to be given to a Player.
func NewPlayer(ctx context.Context, world *World, now time.Time) (*Player, error) {
	admitInline()
	p := &Player{
		clock:  &virtualClock{FakeClock: testingclock.NewFakeClock(now)},
		memory: &memory{workloads: map[client.ObjectKey]*kueue.Workload{}, queues: world.LocalQueues},
		checks: map[kueue.ClusterQueueReference][]kueue.AdmissionCheckStrategyRule{},
	}
	p.cycleClock = &cycleClock{Clock: p.clock}
	own := world.Changed(func(spec *kueue.ClusterQueueSpec) {
		spec.NamespaceSelector = &metav1.LabelSelector{}
		setDefaults(spec)
	})
	var err error
	config, counts := &world.Kueue, ptr.Deref(world.Kueue.Resources, configapi.Resources{})
	if p.cache, err = own.cache(ctx, p.memory, nil, schdcache.WithFairSharing(fairsharing.Enabled(config.FairSharing)), schdcache.WithAdmissionFairSharing(config.AdmissionFairSharing)); err != nil {
		return nil, err
	}
	expected := expectations.New()
	ofQueues := []qcache.Option{
		qcache.WithClock(p.clock), qcache.WithPreemptionExpectations(expected), qcache.WithAdmissionFairSharing(config.AdmissionFairSharing),
		qcache.WithExcludedResourcePrefixes(counts.ExcludeResourcePrefixes), qcache.WithResourceTransformations(counts.Transformations),
	}
	ofScheduler := []scheduler.Option{
		scheduler.WithFairSharing(config.FairSharing), scheduler.WithClock(nil, p.cycleClock), scheduler.WithPreemptionExpectations(expected),
		scheduler.WithAdmissionFairSharing(config.AdmissionFairSharing),
	}
	if counts.QuotaCheckStrategy != nil {
		ofScheduler = append(ofScheduler, scheduler.WithQuotaCheckStrategy(*counts.QuotaCheckStrategy))
	}
	p.queues, p.requeuer = qcache.NewManagerForUnitTestsWithRequeuer(p.memory, p.cache, ofQueues...)
	p.kueue = scheduler.New(p.queues, p.cache, p.memory, &events.FakeRecorder{}, ofScheduler...) // Without a channel it tells nobody.
	if err := p.addQueues(quietly(ctx), own); err != nil {
		return nil, err
	}
	return p, p.startConsumption(own)
}

func quietly(ctx context.Context) context.Context { return logr.NewContext(ctx, logr.Discard()) }

func (p *Player) addQueues(ctx context.Context, world *World) error {
	for n := range world.Cohorts {
		p.queues.AddOrUpdateCohort(ctx, &world.Cohorts[n])
	}
	for n := range world.ClusterQueues {
		cq := &world.ClusterQueues[n]
		if err := p.queues.AddClusterQueue(ctx, cq); err != nil {
			return fmt.Errorf("ClusterQueue %s: %w", cq.Name, err)
		}
		p.checks[kueue.ClusterQueueReference(cq.Name)] = ptr.Deref(cq.Spec.AdmissionChecksStrategy, kueue.AdmissionChecksStrategy{}).AdmissionChecks
		for _, group := range cq.Spec.ResourceGroups {
			p.patience = max(p.patience, len(group.Flavors))
		}
	}
	for n := range world.LocalQueues {
		lq := &world.LocalQueues[n]
		if ptr.Deref(lq.Spec.StopPolicy, kueue.None) != kueue.None {
			continue // Kueue does not queue there.
		}
		if err := p.queues.AddLocalQueue(ctx, lq); err != nil {
			return fmt.Errorf("LocalQueue %s/%s: %w", lq.Namespace, lq.Name, err)
		}
	}
	return nil
}

// Add makes a Workload known: one with quota holds it, also one that was deactivated and stops; one that waits queues.
// It fails where the queue of the Workload is not there.
func (p *Player) Add(ctx context.Context, wl *kueue.Workload) error {
	ctx, wl = quietly(ctx), wl.DeepCopy()
	workload.AdjustResources(ctx, p.memory, wl)
	if workload.IsAdmissible(wl) {
		if err := p.queues.AddOrUpdateWorkload(logr.Discard(), wl.DeepCopy()); err != nil {
			return err
		}
		p.memory.workloads[client.ObjectKeyFromObject(wl)] = wl
		return nil
	}
	if workload.HasQuotaReservation(wl) {
		wl.Spec.Active = nil // The cache would take none that is not.
	}
	if !p.cache.AddOrUpdateWorkload(logr.Discard(), wl.DeepCopy()) {
		return fmt.Errorf("Workload %s/%s: its ClusterQueue is not there", wl.Namespace, wl.Name)
	}
	p.memory.workloads[client.ObjectKeyFromObject(wl)] = wl
	p.queues.QueueSecondPassIfNeeded(ctx, wl, 0)
	return nil
}

// Remove forgets a Workload that has ended, or was withdrawn. Its quota is free.
func (p *Player) Remove(ctx context.Context, key client.ObjectKey) {
	if wl := p.memory.workloads[key]; wl != nil {
		delete(p.memory.workloads, key)
		p.free(wl)
		p.queues.DeleteAndForgetWorkload(logr.Discard(), workload.Key(wl))
	}
}

// Stopped says that nothing runs any more of a Workload that was evicted: its quota is free, and it queues again. It
// returns the Workload as it is then, and fails for one that cannot queue: its queue is not there any more.
func (p *Player) Stopped(ctx context.Context, key client.ObjectKey) (*kueue.Workload, error) {
	wl := p.memory.workloads[key]
	if wl == nil || !workloadevict.IsEvicted(wl) || !workload.HasQuotaReservation(wl) {
		return wl, nil
	}
	after := wl.DeepCopy()
	evicted := apimeta.FindStatusCondition(after.Status.Conditions, kueue.WorkloadEvicted)
	workload.SetRequeuedCondition(after, evicted.Reason, evicted.Message, true)
	workload.UnsetQuotaReservationWithCondition(after, "Pending", evicted.Message, p.clock.Now())
	p.memory.workloads[key] = after
	p.free(wl)
	p.queues.DeleteSecondPassWithoutLock(workload.Key(wl))
	return after, p.queues.AddOrUpdateWorkload(logr.Discard(), after.DeepCopy())
}

// free returns what wl holds, and has others looked at again soon.
func (p *Player) free(wl *kueue.Workload) {
	if wl.Status.Admission == nil {
		return
	}
	_ = p.cache.DeleteWorkload(logr.Discard(), workload.Key(wl)) // It is not there where its ClusterQueue is not.
	qcache.NotifyRetryInadmissible(p.queues, sets.New(wl.Status.Admission.ClusterQueue))
	p.requeueAt = cmp.Or(p.requeueAt, p.clock.Now().Add(requeueAfter))
}

// ChecksReady says that all admission checks of a Workload are, for the quota that it has now.
func (p *Player) ChecksReady(ctx context.Context, key client.ObjectKey) []Moved {
	wl := p.memory.workloads[key]
	if wl == nil || !workload.HasQuotaReservation(wl) || workloadevict.IsEvicted(wl) {
		return nil
	}
	after := wl.DeepCopy()
	after.Status.AdmissionChecks = nil
	for _, rule := range p.checks[wl.Status.Admission.ClusterQueue] {
		after.Status.AdmissionChecks = append(after.Status.AdmissionChecks, kueue.AdmissionCheckState{Name: rule.Name, State: kueue.CheckStateReady})
	}
	return p.admit(quietly(ctx), wl, after)
}

// NodesMade says that a Workload whose checks are ready, and that has no place yet below its topology, has one that the
// world does not have: on nodes that are made for it, or in another cluster.
func (p *Player) NodesMade(ctx context.Context, key client.ObjectKey) []Moved {
	wl := p.memory.workloads[key]
	if wl == nil || !workload.HasTopologyAssignmentsPending(wl) || !workload.HasAllChecksReady(wl) || workloadevict.IsEvicted(wl) {
		return nil
	}
	after := wl.DeepCopy()
	for n := range after.Status.Admission.PodSetAssignments {
		if of := &after.Status.Admission.PodSetAssignments[n]; of.TopologyAssignment == nil {
			of.DelayedTopologyRequest = ptr.To(kueue.DelayedTopologyRequestStateReady)
		}
	}
	p.queues.DeleteSecondPassWithoutLock(workload.Key(wl))
	return p.admit(quietly(ctx), wl, after)
}

// admit has a Workload be as it is now, and admitted where nothing is missing any more.
func (p *Player) admit(ctx context.Context, before, after *kueue.Workload) []Moved {
	workload.SyncAdmittedCondition(after, p.clock.Now())
	p.memory.put(before, after)
	p.cache.AddOrUpdateWorkload(logr.Discard(), after.DeepCopy())
	p.queues.QueueSecondPassIfNeeded(ctx, after.DeepCopy(), 0)
	return p.observe(ctx)
}

// Wakes returns the next time at which Kueue does something by itself; zero where it does not.
func (p *Player) Wakes() time.Time {
	next := p.requeueAt
	for _, t := range p.clock.timers {
		if next.IsZero() || t.at.Before(next) {
			next = t.at
		}
	}
	return next
}

// SetTime moves the clock. It never goes back.
func (p *Player) SetTime(ctx context.Context, now time.Time) {
	p.clock.set(now)
	p.consume()
	if !p.requeueAt.IsZero() && !p.requeueAt.After(now) {
		p.requeueAt = time.Time{}
		p.requeuer.ProcessRequeues(quietly(ctx))
	}
}
