// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/remainder"
)

// remainders deletes the Workloads that keep the quota of pods which are left, with the last of them.
type remainders struct{ env *environment }

// chargedWithin is how long a remainder may be without a charge. Where the API server's clock is ahead
// of ours, it may be so for longer. Who makes it sees to that in seconds, or makes another.
const chargedWithin = 10 * time.Second

// Reconcile implements reconcile.Reconciler.
func (r *remainders) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	rest := &kueue.Workload{}
	err := r.env.client.Get(ctx, req.NamespacedName, rest)
	if err != nil || !rest.DeletionTimestamp.IsZero() || len(remainder.Runs(rest)) == 0 {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	job := types.NamespacedName{Namespace: rest.Namespace, Name: rest.Labels[remainder.Label]}
	view, err := state.Observe(ctx, r.env.client, job)
	if err != nil {
		return ctrl.Result{}, err
	}
	pods, err := r.env.podsIn(view).Left(ctx, job)
	if err != nil {
		return ctrl.Result{}, err
	}
	since := rest.CreationTimestamp.Time
	left := len(remainder.PodsOf(rest, pods)) > 0
	if left && (kueuelib.HasQuotaReservation(rest) || time.Since(since) < chargedWithin) {
		return ctrl.Result{RequeueAfter: recheckIn(since)}, nil
	}
	// It may be charged at this moment.
	err = r.env.client.Delete(ctx, rest, client.Preconditions{UID: &rest.UID, ResourceVersion: &rest.ResourceVersion})
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: retrySoon}, nil
	}
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("deleting Workload %s of pods that are gone: %w", req, err)
	}
	if left {
		ctrl.LoggerFrom(ctx).Info("Deleted a Workload that was made for pods which are left and never charged")
	} else {
		ctrl.LoggerFrom(ctx).Info("Found no pod left of a TrainJob that MultiKueue deleted and let the quota go")
	}
	return ctrl.Result{}, nil
}
