// SPDX-License-Identifier: Apache-2.0

package state

import (
	"slices"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/utils/ptr"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// PhaseOf returns what a TrainJob of a queue does now, in the words of pkg/metrics, by its Workload and its
// JobSet, which may be nil; empty: it is over, and holds nothing. The metrics and the plugin go by it.
func PhaseOf(job *trainjob.TrainJob, wl *kueue.Workload, js *jobsetapi.JobSet) string {
	over := job.Finished() || !job.DeletionTimestamp.IsZero()
	holds := wl != nil && HoldsQuota(wl)
	switch {
	case over && holds:
		return metrics.StateStopping
	case over:
		return ""
	case wl == nil:
		return metrics.StateWaitingForTrainer
	case holds && !StoppedSince(wl).IsZero():
		return metrics.StateStopping
	case !kueuelib.IsAdmitted(wl):
		return metrics.StateQueued
	case job.Suspended() && runs(js):
		return metrics.StateStopping
	case job.Suspended():
		return metrics.StateAdmitted
	case ready(job, js):
		return metrics.StateRunning
	}
	return metrics.StateStarting
}

// runs reports whether a JobSet has pods, or may still get some.
func runs(js *jobsetapi.JobSet) bool {
	return js != nil && (!ptr.Deref(js.Spec.Suspend, false) || SaysActive(js))
}

// ready reports whether the pods of a resumed TrainJob are ready. The JobSet of one that runs in
// another cluster is not here; its status is: something of every replicated job is ready or done.
func ready(job *trainjob.TrainJob, js *jobsetapi.JobSet) bool {
	statuses := job.Status.JobsStatus
	if job.ManagedExternally() {
		return len(statuses) > 0 && !slices.ContainsFunc(statuses, func(s trainer.JobStatus) bool {
			return ptr.Deref(s.Ready, 0)+ptr.Deref(s.Succeeded, 0) == 0
		})
	}
	return js != nil && podset.Ready(js, statuses)
}
