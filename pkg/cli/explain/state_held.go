// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"bytes"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"

	"github.com/kueue-trainer/kueue-trainer/pkg/hold"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
)

// Held is for a job that its user keeps out of its queue.
const Held Phase = "Held"

// heldOut is for a job that kubectl trainjob hold or stop keeps out of its queue.
func heldOut(f *Facts) *State {
	name := f.Job.Labels[kueueconstants.QueueLabel]
	queue, is := hold.From(name)
	if !is || f.Cluster.LocalQueue(f.Job.Namespace, kueue.LocalQueueName(name)) != nil {
		return nil
	}
	if f.Workload != nil && kueuelib.HasQuotaReservation(f.Workload) {
		return &State{Phase: Stopping, Reason: "Held", Message: fmt.Sprintf("is being stopped, to be held out of queue %s", queue) + podsLeft(f)}
	}
	return &State{Phase: Held, Reason: "Held", Stuck: true, Since: heldSince(f),
		Message: fmt.Sprintf("is held out of queue %s by its user", queue) + perhapsStopping(f),
		Remedy:  fmt.Sprintf("kubectl trainjob resume -n %s %s", f.Job.Namespace, f.Job.Name)}
}

// isHeld reports whether the job names the queue of what is held.
func (f *Facts) isHeld() bool {
	_, is := hold.From(f.Job.Labels[kueueconstants.QueueLabel])
	return is
}

// perhapsStopping is for who cannot see whether the job has given back its quota.
func perhapsStopping(f *Facts) string {
	if f.Workload == nil && !f.Saw(workloads) {
		return "; you may not see its Workload, nor so whether it still has quota"
	}
	return ""
}

// heldSince is when the plugin changed the label last; nil where somebody else did.
func heldSince(f *Facts) *metav1.Time {
	var newest *metav1.Time
	for i := range f.Job.ManagedFields {
		entry := &f.Job.ManagedFields[i]
		if entry.Manager == hold.FieldOwner && ownsQueueLabel(entry) && (newest == nil || newest.Before(entry.Time)) {
			newest = entry.Time
		}
	}
	return newest
}

// ownsQueueLabel reports whether the label was changed last by the owner of these fields.
func ownsQueueLabel(entry *metav1.ManagedFieldsEntry) bool {
	return entry.FieldsV1 != nil && bytes.Contains(entry.FieldsV1.GetRawBytes(), []byte(`"f:`+kueueconstants.QueueLabel+`"`))
}
