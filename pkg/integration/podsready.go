// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"sync"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/placeholder"
)

// readiness is what the condition PodsReady of a Workload says.
type readiness struct {
	status          metav1.ConditionStatus
	reason, message string
}

var (
	waitsForStart    = readiness{metav1.ConditionFalse, kueue.WorkloadWaitForStart, "Not all pods are ready or succeeded"}
	waitsForRecovery = readiness{metav1.ConditionFalse, kueue.WorkloadWaitForRecovery, "At least one pod has failed, waiting for recovery"}
	podsStarted      = readiness{metav1.ConditionTrue, kueue.WorkloadStarted, "All pods reached readiness and the workload is running"}
	podsRecovered    = readiness{metav1.ConditionTrue, kueue.WorkloadRecovered, podsStarted.message}
	podsLeft         = readiness{metav1.ConditionTrue, placeholder.PodsLeft, "The workload does not run any more, and pods of it are left"}
)

// nextReadiness returns what PodsReady of a Workload has to say next, or nil while what it
// says will do. jobframework writes "not ready" as soon as there is a Workload; Kueue takes
// a missing condition for the same, so the first write is the one that says "ready".
func nextReadiness(wl *kueue.Workload, ready bool) *readiness {
	condition := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadPodsReady)
	admitted := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadAdmitted)
	is := func(reason string) bool { return condition != nil && condition.Reason == reason }
	switch {
	case kueuelib.IsFinished(wl):
		return nil
	case !kueuelib.IsAdmitted(wl), kueuelib.IsEvicted(wl):
		if condition == nil || is(kueue.WorkloadWaitForStart) {
			return nil
		}
		return &waitsForStart
	case kueuelib.ReplacesNode(wl):
		// Kueue 0.19 looks for another node once more after any write in that moment, and
		// evicts the job because the failed one is not among its nodes any more.
		return nil
	case ready && (condition == nil || condition.Status != metav1.ConditionTrue || is(placeholder.PodsLeft)):
		if is(kueue.WorkloadWaitForRecovery) {
			return &podsRecovered
		}
		return &podsStarted
	case ready, condition == nil, condition.Status != metav1.ConditionTrue:
		return nil
	case condition.LastTransitionTime.Before(&admitted.LastTransitionTime), is(placeholder.PodsLeft):
		// It is of an admission before this one.
		return &waitsForStart
	}
	return &waitsForRecovery
}

// reportReadiness writes what PodsReady has to say next of a Workload of the TrainJob key, and reports whether there was
// anything.
func (e *dependencies) reportReadiness(ctx context.Context, key types.NamespacedName, wl *kueue.Workload, ready bool) (bool, error) {
	next := nextReadiness(wl, ready)
	if next == nil {
		return false, nil
	}
	return true, e.writeReadiness(ctx, key, wl, next)
}

// writeReadiness writes PodsReady. What it was written by is an old view from then on. How long it took until pods were ready
// goes into Kueue's metrics.
func (e *dependencies) writeReadiness(ctx context.Context, key types.NamespacedName, wl *kueue.Workload, next *readiness) error {
	err := kueuelib.SetCondition(ctx, e.client, wl.DeepCopy(), kueue.WorkloadPodsReady, next.status, next.reason, next.message)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	e.expectations.Outdate(key, wl)
	ctrl.LoggerFrom(ctx).V(2).Info("Reported PodsReady", "status", next.status, "reason", next.reason)
	if *next != podsStarted {
		// One that recovers was ready once: it would count twice.
		return nil
	}
	ofQueue, err := e.exposesMetrics(ctx, wl)
	kueuelib.ObserveReady(wl, ofQueue, e.labels)
	return err
}

// exposesMetrics reports whether Kueue's configuration wants metrics of a Workload's LocalQueue.
func (e *dependencies) exposesMetrics(ctx context.Context, wl *kueue.Workload) (bool, error) {
	config := kueuelib.NewLocalQueueMetrics(e.kueue.Settings().LocalQueueMetrics)
	if !config.IsEnabled() {
		return false, nil
	}
	var queue kueue.LocalQueue
	key := client.ObjectKey{Namespace: wl.Namespace, Name: string(wl.Spec.QueueName)}
	if err := e.client.Get(ctx, key, &queue); client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading LocalQueue %s for its metrics: %w", key, err)
	} else if err != nil {
		return false, nil
	}
	return config.ShouldExposeLocalQueueMetrics(queue.Labels), nil
}

// blocksAdmission reports whether Kueue admits nothing, in no queue, while a Workload that holds quota is not ready.
func (e *dependencies) blocksAdmission() bool {
	waits := e.kueue.Settings().WaitForPodsReady
	return waits != nil && ptr.Deref(waits.BlockAdmission, false)
}

// startReadinessOver resets PodsReady of a Workload that is evicted, before its quota is given
// back: Kueue's scheduler writes the condition as it last saw it when it admits the
// Workload again, and would evict it at once for a recovery that is long over. The quota
// follows with the next view of the Workload. Where Kueue would admit nothing meanwhile, that waits for the last pod.
func startReadinessOver(ctx context.Context, j *job) error {
	wl := j.holdingQuota()
	if wl == nil || !j.deps.kueue.WaitsForPodsReady() || j.deps.blocksAdmission() && j.active(ctx) {
		return nil
	}
	reported, err := j.deps.reportReadiness(ctx, j.key, wl, false)
	if err != nil || !reported {
		return err
	}
	j.stopping = true
	return nil
}

// reportPodsLeft has Kueue admit others while Workloads of the job hold quota only for the pods that are left of a run: they
// never get ready again.
func reportPodsLeft(ctx context.Context, j *job) error {
	if !j.deps.blocksAdmission() {
		return nil
	}
	for _, wl := range j.view.Workloads {
		if !state.HoldsQuota(wl) || j.alive() && state.StoppedSince(wl).IsZero() && !(j.IsSuspended() && movedOn(j, wl) != "") ||
			apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadPodsReady) {
			continue
		}
		if err := j.deps.writeReadiness(ctx, j.key, wl, &podsLeft); err != nil {
			return fmt.Errorf("reporting that pods are left of Workload %s: %w", client.ObjectKeyFromObject(wl), err)
		}
	}
	return nil
}

// reportPodsReady brings PodsReady of a TrainJob's Workload in step, where Kueue waits for it, and
// the metrics in any case.
func reportPodsReady(ctx context.Context, j *job) result {
	// A job that is suspended, or was a moment ago, may have the counts of its last pods.
	ready := sync.OnceValue(func() bool {
		return j.decision.started == "" && (!j.IsSuspended() || j.ManagedExternally()) && j.PodsReady(ctx, j.deps.client)
	})
	measureReady(j, ready)
	workloads := j.workloads()
	if !j.deps.kueue.WaitsForPodsReady() || len(workloads) == 0 || j.deps.expectations.Outdated(j.key, workloads) {
		return result{}
	}
	for _, wl := range workloads {
		if j.deps.blocksAdmission() && state.HoldsQuota(wl) && kueuelib.IsEvicted(wl) {
			// Stop says what becomes of it.
			continue
		}
		if _, err := j.deps.reportReadiness(ctx, j.key, wl, ready()); err != nil {
			return ofError(err)
		}
	}
	if j.IsSuspended() {
		return result{}
	}
	return result{again: j.awaitsCluster()}
}
