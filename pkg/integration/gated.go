// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kueue-trainer/kueue-trainer/pkg/heap"
)

// gated is a reconciler whose reconciles pass a gate.
type gated struct {
	reconcile.Reconciler
	gate *heap.Gate
}

// Reconcile implements reconcile.Reconciler.
func (g gated) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	leave, err := g.gate.Pass(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	defer leave()
	return g.Reconciler.Reconcile(ctx, req)
}
