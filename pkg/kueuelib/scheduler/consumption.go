// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	configapi "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/cache/queue/afs"
	"sigs.k8s.io/kueue/pkg/util/admissionfairsharing"
	utilqueue "sigs.k8s.io/kueue/pkg/util/queue"
	"sigs.k8s.io/kueue/pkg/util/resource"
	"sigs.k8s.io/kueue/pkg/workload"
)

// consumption keeps what LocalQueues have consumed, by which admission fair sharing puts their Workloads in order. It
// does what Kueue's controllers of LocalQueues and Workloads do, whenever something happens instead of in intervals.
type consumption struct {
	config *configapi.AdmissionFairSharing
	queues []*kueue.LocalQueue
}

// startConsumption begins with what LocalQueues say that they have consumed.
func (p *Player) startConsumption(world *World) error {
	if !admissionfairsharing.Enabled(world.Kueue.AdmissionFairSharing) {
		return nil
	}
	p.consumed.config = world.Kueue.AdmissionFairSharing
	for n := range world.LocalQueues {
		lq := &world.LocalQueues[n]
		if !p.cache.ClusterQueueUsesAdmissionFairSharing(lq.Spec.ClusterQueue) {
			continue
		}
		if err := p.cache.AddLocalQueue(lq); err != nil {
			return fmt.Errorf("LocalQueue %s/%s: %w", lq.Namespace, lq.Name, err)
		}
		p.consumed.queues = append(p.consumed.queues, lq)
		p.update(utilqueue.Key(lq), func(e afs.UsageLedgerEntry) afs.UsageLedgerEntry {
			if fair := lq.Status.FairSharing; fair != nil && fair.AdmissionFairSharingStatus != nil {
				e.Resources = fair.AdmissionFairSharingStatus.ConsumedResources
			}
			e.LastUpdate, e.StatusAccounted = p.clock.Now(), true
			return e
		})
	}
	return nil
}

func (p *Player) update(lq utilqueue.LocalQueueReference, change func(afs.UsageLedgerEntry) afs.UsageLedgerEntry) {
	p.queues.AfsUsageLedger.Update(lq, func(old afs.UsageLedgerEntry, _ bool) afs.UsageLedgerEntry { return change(old) })
}

// consume counts what was used until now, and lets what was before fade. The order in queues is that of now.
func (p *Player) consume() {
	for _, lq := range p.consumed.queues {
		key := utilqueue.Key(lq)
		var used corev1.ResourceList // Of a queue that is not there, nothing runs.
		if queue, err := p.cache.GetCacheLocalQueue(lq.Spec.ClusterQueue, key); err == nil {
			used = queue.GetAdmittedUsage()
		}
		p.update(key, func(e afs.UsageLedgerEntry) afs.UsageLedgerEntry { return p.faded(e, used) })
		// It fails for a ClusterQueue that is not there, where nobody waits.
		_ = p.queues.RebuildClusterQueue(&kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: string(lq.Spec.ClusterQueue)}}, lq.Name)
	}
}

func (p *Player) faded(e afs.UsageLedgerEntry, used corev1.ResourceList) afs.UsageLedgerEntry {
	now := p.clock.Now()
	halfLife := p.consumed.config.UsageHalfLifeTime.Duration
	if halfLife == 0 {
		e.Resources = corev1.ResourceList{}
	} else {
		e.Resources = admissionfairsharing.CalculateDecayedConsumed(e.Resources, used, max(0, now.Sub(e.LastUpdate)).Seconds(), halfLife.Seconds())
	}
	e.LastUpdate = now
	return e
}

// settlePenalty counts what Kueue has put on a LocalQueue for a start as consumed.
func (p *Player) settlePenalty(wl *kueue.Workload) {
	if len(p.consumed.queues) == 0 || !p.cache.ClusterQueueUsesAdmissionFairSharing(wl.Status.Admission.ClusterQueue) {
		return
	}
	p.update(utilqueue.KeyFromWorkload(wl), func(e afs.UsageLedgerEntry) afs.UsageLedgerEntry {
		settled, penalty := e.WithoutPenalty(afs.WorkloadReference(workload.Key(wl)))
		settled.Resources = resource.MergeResourceListKeepSum(settled.Resources, penalty)
		return settled
	})
	p.consume()
}
