// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"
)

// classMissing warns people who name a priority class that is not there. It is no refusal: people apply the class and
// the job together, and the job waits for the class.
func (r *review) classMissing(ctx context.Context) []string {
	class := r.job.Labels[kueueconstants.WorkloadPriorityClassLabel]
	if class == "" || r.old != nil && r.old.Labels[kueueconstants.WorkloadPriorityClassLabel] == class {
		return nil
	}
	if managed, err := r.Queues.Manages(ctx, r.job); err != nil || !managed {
		return nil
	}
	if !apierrors.IsNotFound(r.Client.Get(ctx, client.ObjectKey{Name: class}, &kueue.WorkloadPriorityClass{})) {
		return nil
	}
	return []string{fmt.Sprintf("metadata.labels[%s]: there is no WorkloadPriorityClass %s, and the job waits for one: "+
		"name another (kubectl get workloadpriorityclasses), or ask an admin to create it", kueueconstants.WorkloadPriorityClassLabel, class)}
}
