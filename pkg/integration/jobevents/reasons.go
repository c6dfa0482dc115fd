// SPDX-License-Identifier: Apache-2.0

package jobevents

import (
	"fmt"

	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
)

// Reasons and actions of our own events on TrainJobs; Kueue's jobframework adds
// Stopped, CreatedWorkload and FinishedWorkload. A start has jobframework's reason.
const (
	ReasonStarted        = jobframework.ReasonStarted
	ReasonPlacementError = "PlacementRefused"
	ReasonUngated        = "Ungated"
	ReasonUngateRefused  = "UngateRefused"
	ReasonNotDescribed   = "PodSetsUnknown"
	ReasonNoPriority     = "PriorityClassMissing"
	ReasonRequeued       = "QueuedAgain"
	ReasonRefused        = "WriteRefused"
	ReasonStopping       = "StillStopping"
	ReasonNotAlone       = "InTreeActive"
	ReasonInTreeUnknown  = "InTreeUnknown"
	ReasonTrainerUnknown = "TrainerUnknown"
	ReasonTrainerBehind  = "TrainerBehind"
	ReasonUnprepared     = "NotPrepared"
	ReasonOverlooked     = "QueuedLate"
	ReasonPrebuilt       = "PrebuiltWorkloadUnusable"
	ReasonEnded          = "HasEnded"
	ReasonCannotStart    = "CannotStart"
	ReasonNotStarted     = "NotStarted"
	ReasonNotDispatched  = "NotDispatched"

	ReasonTrainerSilent = "TrainerSilent"
	ReasonWriteInVain   = "WriteInVain"
	ReasonOutOfSync     = "WorkloadOutOfSync"
	ReasonDeactivated   = "WorkloadDeactivated"
	ReasonCheckRejected = "AdmissionCheckRejected"
	ReasonCheckRetries  = "AdmissionCheckRetries"
	ReasonNotAdmissible = "NotAdmissible"

	ReasonNotManaged = "NamespaceNotManaged"

	ReasonJobSetSuspended = "JobSetSuspended"
	ReasonJobSetOutdated  = "JobSetOutdated"

	ActionStart    = "Start"
	ActionStop     = "Stop"
	ActionDescribe = "Describe"
	ActionUngate   = "Ungate"
	ActionWrite    = "Write"
	ActionQueue    = "Queue"
)

// Truncate keeps a message within what the events API takes.
func Truncate(message string) string {
	return kueuelib.TruncateEvent(message)
}

// Count returns a number of things in words: 1 pod, 2 pods.
func Count(n int32, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
