// SPDX-License-Identifier: Apache-2.0

// Package readiness reports PodsReady of the Workloads of TrainJobs.
package readiness

import (
	"context"
	"fmt"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobclient"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/queues"
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

// Reporter writes it.
type Reporter struct {
	Client       client.Client
	Expectations *jobclient.Expectations
	Queues       *queues.Queues
	// Labels are those of Kueue's metrics.
	Labels *kueuelib.CustomLabels
}

// Report writes what PodsReady has to say next of a Workload of the TrainJob key, and reports whether there was
// anything.
func (r Reporter) Report(ctx context.Context, key types.NamespacedName, wl *kueue.Workload, ready bool) (bool, error) {
	next := nextReadiness(wl, ready)
	if next == nil {
		return false, nil
	}
	return true, r.write(ctx, key, wl, next)
}

// ReportPodsLeft writes of a Workload that it holds quota only for the pods that are left of a run: they never get ready again.
func (r Reporter) ReportPodsLeft(ctx context.Context, key types.NamespacedName, wl *kueue.Workload) error {
	if err := r.write(ctx, key, wl, &podsLeft); err != nil {
		return fmt.Errorf("reporting that pods are left of Workload %s: %w", client.ObjectKeyFromObject(wl), err)
	}
	return nil
}

// write writes PodsReady. What it was written by is an old view from then on. How long it took until pods were ready
// goes into Kueue's metrics.
func (r Reporter) write(ctx context.Context, key types.NamespacedName, wl *kueue.Workload, next *readiness) error {
	err := kueuelib.SetCondition(ctx, r.Client, wl.DeepCopy(), kueue.WorkloadPodsReady, next.status, next.reason, next.message)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	r.Expectations.Outdate(key, wl)
	ctrl.LoggerFrom(ctx).V(2).Info("Reported PodsReady", "status", next.status, "reason", next.reason)
	if *next != podsStarted {
		// One that recovers was ready once: it would count twice.
		return nil
	}
	ofQueue, err := r.Queues.ExposesMetrics(ctx, wl)
	kueuelib.ObserveReady(wl, ofQueue, r.Labels)
	return err
}
