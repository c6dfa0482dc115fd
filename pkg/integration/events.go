// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"
	"sigs.k8s.io/kueue/pkg/util/api"
)

// Reasons and actions of our own events on TrainJobs; Kueue's jobframework adds
// Stopped, CreatedWorkload and FinishedWorkload. A start has jobframework's reason.
const (
	reasonStarted        = jobframework.ReasonStarted
	reasonPlacementError = "PlacementRefused"
	reasonUngated        = "Ungated"
	reasonUngateRefused  = "UngateRefused"
	reasonNotDescribed   = "PodSetsUnknown"
	reasonRequeued       = "QueuedAgain"
	reasonRefused        = "WriteRefused"
	reasonStopping       = "StillStopping"
	reasonNotAlone       = "InTreeActive"
	reasonInTreeUnknown  = "InTreeUnknown"
	reasonTrainerUnknown = "TrainerUnknown"
	reasonTrainerBehind  = "TrainerBehind"
	reasonUnprepared     = "NotPrepared"
	reasonPrebuilt       = "PrebuiltWorkloadUnusable"
	reasonEnded          = "HasEnded"
	reasonCannotStart    = "CannotStart"
	reasonNotStarted     = "NotStarted"

	reasonTrainerSilent = "TrainerSilent"
	reasonWriteInVain   = "WriteInVain"
	reasonOutOfSync     = "WorkloadOutOfSync"
	reasonDeactivated   = "WorkloadDeactivated"
	reasonCheckRejected = "AdmissionCheckRejected"
	reasonCheckRetries  = "AdmissionCheckRetries"
	reasonNotAdmissible = "NotAdmissible"

	reasonJobSetSuspended = "JobSetSuspended"
	reasonJobSetOutdated  = "JobSetOutdated"

	actionStart    = "Start"
	actionStop     = "Stop"
	actionDescribe = "Describe"
	actionUngate   = "Ungate"
	actionWrite    = "Write"
	actionQueue    = "Queue"
)

// truncate keeps a message within what the events API takes.
func truncate(message string) string {
	return api.TruncateEventMessage(message)
}

// placedMessage says where an admission sends a job: queue, ClusterQueue, and the
// flavor of every PodSet.
func placedMessage(wl *kueue.Workload) string {
	admission := wl.Status.Admission
	parts := make([]string, 0, len(admission.PodSetAssignments))
	for i := range admission.PodSetAssignments {
		parts = append(parts, assignmentMessage(&admission.PodSetAssignments[i]))
	}
	return truncate(fmt.Sprintf("Admitted from queue %s by ClusterQueue %s: %s",
		wl.Spec.QueueName, admission.ClusterQueue, strings.Join(parts, "; ")))
}

func assignmentMessage(a *kueue.PodSetAssignment) string {
	pods := int32(0)
	if a.Count != nil {
		pods = *a.Count
	}
	byFlavor := map[kueue.ResourceFlavorReference][]string{}
	for resource, flavor := range a.Flavors {
		usage := a.ResourceUsage[resource]
		byFlavor[flavor] = append(byFlavor[flavor], fmt.Sprintf("%s %s", usage.String(), resource))
	}
	flavors := make([]string, 0, len(byFlavor))
	for _, flavor := range slices.Sorted(maps.Keys(byFlavor)) {
		amounts := byFlavor[flavor]
		slices.Sort(amounts)
		flavors = append(flavors, fmt.Sprintf("flavor %s (%s)", flavor, strings.Join(amounts, ", ")))
	}
	if len(flavors) == 0 {
		flavors = []string{"no flavor, it requests nothing"}
	}
	return fmt.Sprintf("%s %s on %s", a.Name, plural(pods, "pod"), strings.Join(flavors, ", "))
}

func plural(n int32, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
