// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"cmp"
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/queues"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

var managedByPath = field.NewPath("spec", "managedBy")

// validateManagedBy refuses a TrainJob that comes to a queue where nothing would run it, or where
// MultiKueue would reject it.
func (r *review) validateManagedBy(ctx context.Context, t, old *trainjob.TrainJob) (field.ErrorList, error) {
	queue := jobframework.QueueNameForObject(t)
	if old != nil && queue == jobframework.QueueNameForObject(old) {
		return nil, nil
	}
	err := cmp.Or(r.Queues.Reachable(ctx, t), r.Queues.Dispatchable(ctx, t, string(queue)))
	if errors.Is(err, queues.ErrNoOtherCluster) || errors.Is(err, queues.ErrOnlyHere) {
		return field.ErrorList{field.Invalid(managedByPath, ptr.Deref(t.Spec.ManagedBy, trainjob.ControllerName), err.Error())}, nil
	}
	return nil, err
}
