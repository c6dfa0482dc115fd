// SPDX-License-Identifier: Apache-2.0

package jobevents

import (
	"cmp"

	"sigs.k8s.io/kueue/pkg/controller/jobframework"
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

// messageOf returns what the log says of an event of this reason.
func messageOf(reason string) string { return cmp.Or(messages[reason], otherMessage) }

const otherMessage = "Recorded an event"

// messages by reason, jobframework's reasons first; docs/logging.md has them for admins.
var messages = map[string]string{
	jobframework.ReasonCreatedWorkload:       "Created the Workload of TrainJob",
	jobframework.ReasonUpdatedWorkload:       "Updated the Workload of TrainJob",
	jobframework.ReasonDeletedWorkload:       "Deleted a Workload of TrainJob",
	jobframework.ReasonFinishedWorkload:      "Finished the Workload of TrainJob",
	jobframework.ReasonErrWorkloadCompose:    "Could not make the Workload of TrainJob",
	jobframework.ReasonUpdatedAdmissionCheck: "Passed on the message of an admission check",
	jobframework.ReasonStopped:               "Stopped TrainJob",
	jobframework.ReasonSuspended:             "Suspended child of TrainJob",
	jobframework.ReasonDeleted:               "Deleted TrainJob after its retention period",

	ReasonStarted:         "Started TrainJob",
	ReasonPlacementError:  "Could not place TrainJob on the admitted flavors",
	ReasonUngated:         "Freed pod of the admission gate",
	ReasonUngateRefused:   "Could not free pod of the admission gate",
	ReasonNotDescribed:    "Could not describe the pods of TrainJob",
	ReasonNoPriority:      "TrainJob names a priority class that is not there",
	ReasonRequeued:        "Gave the quota back and queued TrainJob again",
	ReasonRefused:         "API server refused a write",
	ReasonStopping:        "TrainJob keeps its quota until its pods are gone",
	ReasonNotAlone:        "Stood aside from TrainJob for Kueue's in-tree integration",
	ReasonInTreeUnknown:   "Stood aside from TrainJob until it is known who integrates it",
	ReasonTrainerUnknown:  "Stood aside from TrainJob until the version of Trainer is known",
	ReasonTrainerBehind:   "TrainJob waits for the roll-out of Trainer",
	ReasonUnprepared:      "Queued TrainJob without its JobSet",
	ReasonOverlooked:      "Put TrainJob into the LocalQueue default of its namespace",
	ReasonPrebuilt:        "TrainJob waits for a prebuilt Workload that it can use",
	ReasonEnded:           "Stopped TrainJob that was resumed after its end",
	ReasonCannotStart:     "TrainJob cannot start",
	ReasonNotStarted:      "TrainJob was admitted and does not start",
	ReasonNotDispatched:   "Had Kueue look again at TrainJob, for which it asks no worker cluster",
	ReasonTrainerSilent:   "TrainJob waits for Trainer, which has not answered",
	ReasonWriteInVain:     "Wrote TrainJob in vain",
	ReasonOutOfSync:       "Workload was finished without a run",
	ReasonDeactivated:     "Workload was deactivated",
	ReasonCheckRejected:   "Admission check rejected the Workload",
	ReasonCheckRetries:    "Admission check gave the quota back to try again",
	ReasonNotAdmissible:   "Workload cannot be admitted",
	ReasonNotManaged:      "TrainJob names a queue in a namespace that Kueue does not manage",
	ReasonJobSetSuspended: "Suspended JobSet in place of Trainer",
	ReasonJobSetOutdated:  "JobSet is not what TrainJob starts from",
}
