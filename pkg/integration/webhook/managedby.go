// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/queues"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

var managedByPath = field.NewPath("spec", "managedBy")

// validateManagedBy refuses a TrainJob that comes to a queue where nothing would run it.
func (r *review) validateManagedBy(ctx context.Context, t, old *trainjob.TrainJob) (field.ErrorList, error) {
	if old != nil && jobframework.QueueNameForObject(t) == jobframework.QueueNameForObject(old) {
		return nil, nil
	}
	err := r.Queues.Reachable(ctx, t)
	if errors.Is(err, queues.ErrNoOtherCluster) {
		return field.ErrorList{field.Invalid(managedByPath, *t.Spec.ManagedBy, err.Error())}, nil
	}
	return nil, err
}
