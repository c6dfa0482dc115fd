// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"fmt"

	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"
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
