// SPDX-License-Identifier: Apache-2.0

// Package podsready reports the condition PodsReady of the Workloads of TrainJobs, where Kueue
// waits for it, and records in Kueue's metrics how long that took.
package podsready

import (
	"context"
	"fmt"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/config/kueueconfig"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobclient"
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
	started          = readiness{metav1.ConditionTrue, kueue.WorkloadStarted, "All pods reached readiness and the workload is running"}
	recovered        = readiness{metav1.ConditionTrue, kueue.WorkloadRecovered, started.message}
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
			return &recovered
		}
		return &started
	case ready, condition == nil, condition.Status != metav1.ConditionTrue:
		return nil
	case condition.LastTransitionTime.Before(&admitted.LastTransitionTime), is(placeholder.PodsLeft):
		// It is of an admission before this one.
		return &waitsForStart
	}
	return &waitsForRecovery
}

// Reporter writes PodsReady of Workloads.
type Reporter struct {
	Client       client.Client
	Kueue        *kueueconfig.Follower
	Expectations *jobclient.Expectations
	// Labels are those of Kueue's metrics.
	Labels *kueuelib.CustomLabels
}

// Wanted reports whether Kueue waits for pods to be ready, or is about to.
func (r Reporter) Wanted() bool { return r.Kueue.WaitsForPodsReady() }

// Blocks reports whether Kueue admits nothing, in no queue, while a Workload that holds quota is not ready.
func (r Reporter) Blocks() bool {
	waits := r.Kueue.Settings().WaitForPodsReady
	return waits != nil && ptr.Deref(waits.BlockAdmission, false)
}

// Report writes what PodsReady has to say next of a Workload of the TrainJob key, and reports
// whether there was anything. What it was written by is an old view from then on.
func (r Reporter) Report(ctx context.Context, key types.NamespacedName, wl *kueue.Workload, ready bool) (bool, error) {
	next := nextReadiness(wl, ready)
	if next == nil {
		return false, nil
	}
	return true, r.write(ctx, key, wl, next)
}

// ReportLeft has Kueue admit others while a Workload holds quota only for the pods that are left of it: they never get
// ready again.
func (r Reporter) ReportLeft(ctx context.Context, key types.NamespacedName, wl *kueue.Workload) error {
	if !r.Blocks() || kueuelib.IsFinished(wl) || apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadPodsReady) {
		return nil
	}
	return r.write(ctx, key, wl, &podsLeft)
}

func (r Reporter) write(ctx context.Context, key types.NamespacedName, wl *kueue.Workload, next *readiness) error {
	err := kueuelib.SetCondition(ctx, r.Client, wl.DeepCopy(), kueue.WorkloadPodsReady, next.status, next.reason, next.message)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	r.Expectations.Outdate(key, jobclient.VersionsOf([]kueue.Workload{*wl}))
	ctrl.LoggerFrom(ctx).V(2).Info("Reported PodsReady", "status", next.status, "reason", next.reason)
	if *next != started {
		// One that recovers was ready once: it would count twice.
		return nil
	}
	return r.observe(ctx, wl)
}

// observe records how long it took until the pods of a Workload were ready, in Kueue's
// metrics.
func (r Reporter) observe(ctx context.Context, wl *kueue.Workload) error {
	exposed, err := r.ExposesMetrics(ctx, wl)
	kueuelib.ObserveReady(wl, exposed, r.Labels)
	return err
}

// ExposesMetrics reports whether Kueue's configuration wants metrics of a Workload's LocalQueue.
func (r Reporter) ExposesMetrics(ctx context.Context, wl *kueue.Workload) (bool, error) {
	config := kueuelib.NewLocalQueueMetrics(r.Kueue.Settings().LocalQueueMetrics)
	if !config.IsEnabled() {
		return false, nil
	}
	var queue kueue.LocalQueue
	key := client.ObjectKey{Namespace: wl.Namespace, Name: string(wl.Spec.QueueName)}
	if err := r.Client.Get(ctx, key, &queue); client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading LocalQueue %s for its metrics: %w", key, err)
	} else if err != nil {
		return false, nil
	}
	return config.ShouldExposeLocalQueueMetrics(queue.Labels), nil
}
