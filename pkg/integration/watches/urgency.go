// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"slices"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

const (
	// batchPeriod is how long a TrainJob waits for more of what Trainer, JobSet and the Job
	// controller report of it: they write a dozen times of one start, and one look at the end of a
	// row of such writes sees what a look at each would.
	batchPeriod = 100 * time.Millisecond

	// idlePeriod is how long it waits after a change by which nothing is decided at once. The next change that
	// matters brings it earlier.
	idlePeriod = 5 * time.Second
)

// after returns how long the TrainJob of what was changed waits for more.
func after(e event.UpdateEvent) time.Duration {
	if matters(e.ObjectOld, e.ObjectNew) {
		return batchPeriod
	}
	return idlePeriod
}

// matters reports whether a TrainJob is decided about by what changed of it, or of what belongs to it.
func matters(before, after client.Object) bool {
	if before.GetGeneration() != after.GetGeneration() || !equality.Semantic.DeepEqual(metaOf(before), metaOf(after)) {
		return true
	}
	switch before := before.(type) {
	case *trainjob.TrainJob:
		after, is := after.(*trainjob.TrainJob)
		return !is || jobMatters(before, after)
	case *kueue.Workload:
		after, is := after.(*kueue.Workload)
		return !is || workloadMatters(before, after)
	case *jobsetapi.JobSet:
		after, is := after.(*jobsetapi.JobSet)
		return !is || jobSetMatters(before, after)
	case *batchv1.Job:
		after, is := after.(*batchv1.Job)
		return !is || childMatters(before, after)
	}
	return true
}

// metaOf returns what people and controllers write into the metadata of an object.
func metaOf(obj client.Object) metav1.ObjectMeta {
	return metav1.ObjectMeta{Labels: obj.GetLabels(), Annotations: obj.GetAnnotations(), Finalizers: obj.GetFinalizers(),
		OwnerReferences: obj.GetOwnerReferences(), DeletionTimestamp: obj.GetDeletionTimestamp()}
}

// jobMatters is matters for the status of a TrainJob: how it ended, what Trainer took note of, and which child Jobs are
// ready or done.
func jobMatters(before, after *trainjob.TrainJob) bool {
	return !sameConditions(before.Status.Conditions, after.Status.Conditions) ||
		!slices.EqualFunc(before.Status.JobsStatus, after.Status.JobsStatus, func(a, b trainer.JobStatus) bool {
			return a.Name == b.Name && ptr.Equal(a.Ready, b.Ready) && ptr.Equal(a.Succeeded, b.Succeeded) && ptr.Equal(a.Failed, b.Failed)
		})
}

// workloadMatters is matters for a Workload: all but what Kueue says, in other words, of one that waits on, and that its pods
// get ready, which we say ourselves.
func workloadMatters(before, after *kueue.Workload) bool {
	a, b := before.Status, after.Status
	if apimeta.IsStatusConditionTrue(b.Conditions, kueue.WorkloadPodsReady) {
		a.Conditions, b.Conditions = withoutPodsReady(a.Conditions), withoutPodsReady(b.Conditions)
	}
	same := sameConditions(a.Conditions, b.Conditions)
	a.Conditions, b.Conditions = nil, nil
	return !same || !equality.Semantic.DeepEqual(a, b)
}

func withoutPodsReady(conditions []metav1.Condition) []metav1.Condition {
	return slices.DeleteFunc(slices.Clone(conditions), func(c metav1.Condition) bool { return c.Type == kueue.WorkloadPodsReady })
}

// jobSetMatters is matters for the status of a JobSet: whether it runs, and whether it is over.
func jobSetMatters(before, after *jobsetapi.JobSet) bool {
	suspended := func(js *jobsetapi.JobSet) bool {
		return apimeta.IsStatusConditionTrue(js.Status.Conditions, string(jobsetapi.JobSetSuspended))
	}
	return before.Status.TerminalState != after.Status.TerminalState || state.SaysActive(before) != state.SaysActive(after) ||
		suspended(before) != suspended(after)
}

// childMatters is matters for the status of a child Job: whether it has its pods, and whether it is over.
func childMatters(before, after *batchv1.Job) bool {
	return state.HasPods(*before) != state.HasPods(*after) || state.SeenResumed(*before) != state.SeenResumed(*after) ||
		state.LacksPods(before) != state.LacksPods(after) || podset.JobEnded(before) != podset.JobEnded(after) ||
		before.Status.Succeeded != after.Status.Succeeded
}

// sameConditions reports whether conditions say the same, in whatever words.
func sameConditions(a, b []metav1.Condition) bool {
	return slices.EqualFunc(a, b, func(a, b metav1.Condition) bool {
		return a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason
	})
}
