// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
)

// prebuilt is the Workload that a job names to be its own; empty for none.
func (f *Facts) prebuilt() string { return jobframework.PrebuiltWorkloadNameFor(f.Job) }

// withoutPrebuilt is for a job that does not have the prebuilt Workload that it names.
func (f *Facts) withoutPrebuilt() *State {
	s := &State{Phase: Unqueued, Reason: "PrebuiltMissing", Since: since(f.Job.CreationTimestamp),
		Message: fmt.Sprintf("is not queued: it names prebuilt Workload %s, which is not there or not its own", f.prebuilt()),
		Remedy:  fmt.Sprintf("create Workload %s in namespace %s like the TrainJob, and the job queues", f.prebuilt(), f.Job.Namespace),
		Stuck:   f.overdue(f.Job.CreationTimestamp)}
	if told := f.warning("PrebuiltWorkloadUnusable"); told != nil {
		s.Message, s.Cause, s.Stuck = "is not queued: "+told.Message, told.Message, true
	}
	return s
}

// workloadOver is for a job whose Workload is finished, while itself it is not: nobody queues it
// again.
func workloadOver(f *Facts) *State {
	if f.Workload == nil || !kueuelib.IsFinished(f.Workload) {
		return nil
	}
	c := apimeta.FindStatusCondition(f.Workload.Status.Conditions, kueue.WorkloadFinished)
	s := &State{Phase: Deactivated, Reason: c.Reason, Stuck: true, Cause: f.Workload.Name, Since: since(c.LastTransitionTime)}
	switch {
	case c.Reason == kueue.WorkloadFinishedReasonOutOfSync:
		s.Message = fmt.Sprintf("gets no quota any more: its Workload %s was finished without a run: %s", f.Workload.Name, c.Message)
		s.Remedy = fmt.Sprintf("delete Workload %s and create it again like the TrainJob, and the job queues", f.Workload.Name)
		differs := func(e *corev1.Event) bool {
			return e.Reason == "PrebuiltWorkloadUnusable" && strings.Contains(e.Message, f.Workload.Name+" is not what this TrainJob is")
		}
		if told := find(f.Warnings, differs); told != nil {
			s.Message = "gets no quota any more: " + told.Message
		}
	case c.Reason == jobframework.FailedToStartFinishedReason:
		s.Message = fmt.Sprintf("could not be started, and its Workload %s is finished: %s", f.Workload.Name, c.Message)
		s.Remedy = fmt.Sprintf("put that right, then delete Workload %s, and the job queues again", f.Workload.Name)
	case f.Job.Suspended() && len(f.livePods()) == 0 && f.overdue(c.LastTransitionTime):
		s.Message = fmt.Sprintf("gets no quota any more: its Workload %s is finished, though the TrainJob is not: %s", f.Workload.Name, c.Message)
		s.Remedy = "delete the TrainJob and create it again"
	default:
		return &State{Phase: Stopping, Reason: c.Reason, Since: s.Since,
			Message: fmt.Sprintf("is about to end: its Workload %s is finished: %s", f.Workload.Name, c.Message) + podsThere(f)}
	}
	return s
}
