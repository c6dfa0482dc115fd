// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobclient"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
)

// Kueue's metrics of jobs are those that Kueue records, for other kinds, in its own process.
func init() {
	metrics.Registry.MustRegister(kueuelib.JobMetrics()...)
}

// readiness is what the condition PodsReady of a Workload says.
type readiness struct {
	status          metav1.ConditionStatus
	reason, message string
}

var (
	waitsForStart    = readiness{metav1.ConditionFalse, kueue.WorkloadWaitForStart, "Not all pods are ready or succeeded"}
	waitsForRecovery = readiness{metav1.ConditionFalse, kueue.WorkloadWaitForRecovery, "At least one pod has failed, waiting for recovery"}
	started          = readiness{metav1.ConditionTrue, kueue.WorkloadStarted, "All pods reached readiness and the workload is running"}
	recovered        = readiness{metav1.ConditionTrue, kueue.WorkloadRecovered, started.message}
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
	case ready && (condition == nil || condition.Status != metav1.ConditionTrue):
		if is(kueue.WorkloadWaitForRecovery) {
			return &recovered
		}
		return &started
	case ready, condition == nil, condition.Status != metav1.ConditionTrue:
		return nil
	case condition.LastTransitionTime.Before(&admitted.LastTransitionTime):
		// It is of an admission before this one.
		return &waitsForStart
	}
	return &waitsForRecovery
}

// startReadinessOver resets PodsReady of a Workload that is evicted, before its quota is given
// back: Kueue's scheduler writes the condition as it last saw it when it admits the
// Workload again, and would evict it at once for a recovery that is long over. The quota
// follows with the next view of the Workload.
func (j *job) startReadinessOver(ctx context.Context) error {
	if j.env.kueue.Settings().WaitForPodsReady == nil {
		return nil
	}
	wl, err := state.HoldingQuota(ctx, j.env.state, &j.TrainJob)
	if err != nil || wl == nil {
		return err
	}
	next := nextReadiness(wl, false)
	if next == nil {
		return nil
	}
	if err := j.env.setReadiness(ctx, j.key, wl, next); err != nil {
		return err
	}
	j.stopping = true
	return nil
}

// reportPodsReady brings PodsReady of a TrainJob's Workload in step, where Kueue waits for it.
func (r *attempt) reportPodsReady(ctx context.Context, j *job) error {
	if !j.alive() || r.env.kueue.Settings().WaitForPodsReady == nil {
		return nil
	}
	workloads, err := state.WorkloadsOf(ctx, r.env.state, &j.TrainJob)
	if err != nil || len(workloads) == 0 || r.env.expectations.Outdated(j.key, jobclient.VersionsOf(workloads)) {
		return err
	}
	// A job that is suspended, or was a moment ago, may have the counts of its last pods.
	ready := j.start.message == "" && (!j.IsSuspended() || j.ManagedExternally()) && j.PodsReady(ctx, r.env.client)
	for i := range workloads {
		if err := r.env.setReadiness(ctx, j.key, &workloads[i], nextReadiness(&workloads[i], ready)); err != nil {
			return err
		}
	}
	return nil
}

// setReadiness writes what PodsReady has to say next, if anything, of a Workload of the TrainJob
// key. What it was written by is an old view from then on.
func (e *environment) setReadiness(ctx context.Context, key types.NamespacedName, wl *kueue.Workload, next *readiness) error {
	if next == nil {
		return nil
	}
	err := kueuelib.SetCondition(ctx, e.client, wl.DeepCopy(), kueue.WorkloadPodsReady, next.status, next.reason, next.message)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	e.expectations.Outdate(key, jobclient.VersionsOf([]kueue.Workload{*wl}))
	ctrl.LoggerFrom(ctx).V(2).Info("Reported PodsReady", "workload", client.ObjectKeyFromObject(wl), "status", next.status, "reason", next.reason)
	if next.status != metav1.ConditionTrue {
		return nil
	}
	return e.observeReady(ctx, wl)
}

// observeReady records how long it took until the pods of a Workload were ready, in Kueue's
// metrics.
func (e *environment) observeReady(ctx context.Context, wl *kueue.Workload) error {
	exposed, err := e.exposesMetrics(ctx, wl)
	kueuelib.ObserveReady(wl, exposed)
	return err
}

// exposesMetrics reports whether Kueue's configuration wants metrics of a Workload's LocalQueue.
func (e *environment) exposesMetrics(ctx context.Context, wl *kueue.Workload) (bool, error) {
	config := kueuelib.NewLocalQueueMetrics(e.kueue.Settings().LocalQueueMetrics)
	if !config.Enabled() {
		return false, nil
	}
	var queue kueue.LocalQueue
	key := client.ObjectKey{Namespace: wl.Namespace, Name: string(wl.Spec.QueueName)}
	if err := e.client.Get(ctx, key, &queue); client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading LocalQueue %s for its metrics: %w", key, err)
	} else if err != nil {
		return false, nil
	}
	return config.Wanted(queue.Labels), nil
}
