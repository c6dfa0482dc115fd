// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/podsets"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
)

// placed reports whether our part is there and past the gate. Where it is not there at
// all, the JobSet tells what runs: an upgrade of Trainer that brings another field takes
// the old one from every TrainJob.
func placed(j *job) bool {
	if j.deps.Field.Has(&j.Spec) {
		return !j.deps.Field.HoldsGate(&j.Spec)
	}
	js := j.jobSet()
	return js != nil && !ptr.Deref(js.Spec.Suspend, false) && podset.Placed(js)
}

// ensureGate sets the gate of a waiting TrainJob that lacks it, because it was made
// or changed while the webhook was away. One that another controller runs needs none.
func ensureGate(ctx context.Context, j *job) result {
	if !j.alive() || !j.IsSuspended() || j.ManagedExternally() || !j.manages {
		return result{}
	}
	if wl := j.holdingQuota(); wl != nil && kueuelib.IsAdmitted(wl) || j.active(ctx) {
		return result{}
	}
	err := gate(ctx, j, j.deps.client)
	if podsets.RuntimeMissing(err) || apierrors.IsNotFound(err) {
		// Told by an event already, or deleted meanwhile.
		return result{}
	}
	return ofError(err)
}
