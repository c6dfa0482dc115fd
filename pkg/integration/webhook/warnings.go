// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// stopsInVain warns people who suspend a job that is placed: Kueue still admits it, so it is
// started again. One that changes its queue or its priority in the same request queues again
// instead, and one that is over is not started.
func (r *review) stopsInVain() []string {
	t, old := r.job, r.old
	if old == nil || old.Suspended() || !t.Suspended() || t.Finished() || t.ManagedExternally() {
		return nil
	}
	if !r.describer.Field.Has(&old.Spec) || r.describer.Field.HoldsGate(&old.Spec) {
		return nil
	}
	for _, label := range []string{kueueconstants.QueueLabel, kueueconstants.WorkloadPriorityClassLabel} {
		if t.Labels[label] != old.Labels[label] {
			return nil
		}
	}
	return []string{fmt.Sprintf("spec.suspend: its pods are stopped, and Kueue starts it again when they are gone; "+
		"kubectl trainjob stop -n %s %s keeps it stopped", t.Namespace, t.Name)}
}

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

// queueUnmanaged warns who creates a TrainJob with a queue in a namespace that Kueue does not manage: it starts at once.
func (r *review) queueUnmanaged(ctx context.Context) []string {
	queue := jobframework.QueueNameForObject(r.job)
	if r.old != nil || queue == "" || queue == trainjob.ProbeQueue {
		return nil
	}
	if managed, err := r.Queues.ManagesNamespace(ctx, r.job.Namespace); err != nil || managed {
		return nil
	}
	becomes := "and runs outside of all quotas"
	if r.job.Suspended() {
		becomes = "and runs outside of all quotas when you set spec.suspend to false"
	}
	return []string{fmt.Sprintf("%s: Kueue does not manage namespace %s (managedJobsNamespaceSelector): the job does not wait in queue %s, %s; "+
		"ask an admin to label the namespace", queueNamePath, r.job.Namespace, queue, becomes)}
}
