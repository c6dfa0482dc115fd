// SPDX-License-Identifier: Apache-2.0

package jobevents

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/deactivation"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// Notice is what the Workload of a TrainJob says that people have to know who look at the
// TrainJob alone.
type Notice struct {
	Reason, Message string
	// Meant: somebody has it wait, so nobody has to be called.
	Meant bool
}

// noticeOf returns the one that matters most, or none.
func noticeOf(wl *kueue.Workload) Notice {
	n := cmp.Or(rejected(wl), deactivated(wl), retried(wl), inadmissible(wl))
	if kueuelib.IsFinished(wl) {
		n = neverRan(wl)
	}
	if n.Reason != "" {
		n.Message = kueuelib.TruncateEvent(fmt.Sprintf("Workload %s %s", wl.Name, n.Message))
	}
	return n
}

// neverRan is about a Workload that was finished without a run. jobframework gives up a start where what the admission
// adds to the pods cannot be added.
func neverRan(wl *kueue.Workload) Notice {
	switch finished := state.True(wl, kueue.WorkloadFinished); finished.Reason {
	case kueue.WorkloadFinishedReasonOutOfSync:
		return Notice{Reason: ReasonOutOfSync, Message: fmt.Sprintf(
			"was finished without a run: %s; delete it and create it again like the TrainJob, and the job queues", finished.Message)}
	case jobframework.FailedToStartFinishedReason:
		return Notice{Reason: ReasonCannotStart, Message: fmt.Sprintf(
			"was finished because the job could not be started: %s; when that is put right, delete it, and the job queues again", finished.Message)}
	}
	return Notice{}
}

// anotherWorkload is what helps where Kueue deactivated one. Those who may submit jobs may not delete it.
const anotherWorkload = "create the TrainJob again, or have somebody with Kueue's role batch-admin delete its Workload, and it queues again"

// deactivated says by whom and why: Kueue gives a reason of its own for what it deactivates.
func deactivated(wl *kueue.Workload) Notice {
	pending := deactivation.Pending(wl)
	if kueuelib.IsActive(wl) && !pending {
		return Notice{}
	}
	who, why := "", ""
	evicted := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadEvicted)
	if !pending && evicted != nil && strings.HasPrefix(evicted.Reason, kueue.WorkloadDeactivated) {
		why = fmt.Sprintf(" (%s: %s)", evicted.Reason, evicted.Message)
		if evicted.Reason != kueue.WorkloadDeactivated {
			who = " by Kueue"
		}
	} else if target := state.True(wl, kueue.WorkloadDeactivationTarget); target != nil {
		who, why = " by Kueue", fmt.Sprintf(" (%s: %s)", target.Reason, target.Message)
	}
	state, remedy := "was deactivated", "set its spec.active to true, and the job queues again"
	if kueuelib.IsDeactivatedByKueue(wl) {
		remedy = anotherWorkload
	}
	if pending {
		state, remedy = "is being deactivated", "the job's pods end, and its quota is free when the last one is gone"
	}
	return Notice{Reason: ReasonDeactivated, Meant: who == "", Message: fmt.Sprintf("%s%s%s; %s", state, who, why, remedy)}
}

// rejected comes before the deactivation that follows it: it names the checks.
func rejected(wl *kueue.Workload) Notice {
	by := rejectedBy(wl)
	if by == "" {
		return Notice{}
	}
	return Notice{Reason: ReasonCheckRejected, Message: fmt.Sprintf("was rejected by admission check %s; when that is put right, %s", by, anotherWorkload)}
}

// rejectedBy returns the checks that rejected a Workload, each with what it says, in the words that
// Kueue has for them. With the eviction Kueue sets their states back, and only its conditions tell.
func rejectedBy(wl *kueue.Workload) string {
	switch {
	case state.ReasonOf(wl, kueue.WorkloadDeactivationTarget) == kueue.WorkloadEvictedByAdmissionCheck:
		return checksIn(state.True(wl, kueue.WorkloadDeactivationTarget).Message)
	case state.ReasonOf(wl, kueue.WorkloadEvicted) == deactivatedByCheck && !kueuelib.IsActive(wl):
		return checksIn(state.True(wl, kueue.WorkloadEvicted).Message)
	}
	var by []string
	for _, check := range wl.Status.AdmissionChecks {
		if check.State == kueue.CheckStateRejected {
			said := ""
			if check.Message != "" {
				said = " (" + check.Message + ")"
			}
			by = append(by, fmt.Sprintf("%q%s", check.Name, said))
		}
	}
	slices.Sort(by)
	return strings.Join(by, "; ")
}

// deactivatedByCheck is Kueue's reason for the eviction of a Workload that a check rejected.
const deactivatedByCheck = kueue.WorkloadDeactivated + "DueTo" + kueue.WorkloadEvictedByAdmissionCheck

// checksIn returns what Kueue's message about rejecting checks says of them.
func checksIn(message string) string {
	if _, checks, found := strings.Cut(message, "in Rejected state: "); found {
		return checks
	}
	return message
}

// retried is about a check that gave the quota back. With the eviction Kueue sets its state back, and only the condition tells.
func retried(wl *kueue.Workload) Notice {
	which, says := "", ""
	// One that waits for quota again since keeps the condition.
	if state.ReasonOf(wl, kueue.WorkloadEvicted) == kueue.WorkloadEvictedByAdmissionCheck && (state.HoldsQuota(wl) || state.True(wl, kueue.WorkloadRequeued) == nil) {
		which, says = "an admission check", state.True(wl, kueue.WorkloadEvicted).Message
	}
	checks := wl.Status.AdmissionChecks
	if at := slices.IndexFunc(checks, func(c kueue.AdmissionCheckState) bool { return c.State == kueue.CheckStateRetry }); at >= 0 {
		which, says = fmt.Sprintf("admission check %s", checks[at].Name), checks[at].Message
	}
	if which == "" {
		return Notice{}
	}
	return Notice{Reason: ReasonCheckRetries, Message: fmt.Sprintf("has to wait for %s, which gave its quota back to try again: %s", which, says)}
}

// inadmissible is about what no freed quota helps. Kueue before its granular reasons calls
// all of that inadmissible.
func inadmissible(wl *kueue.Workload) Notice {
	reserved := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadQuotaReserved)
	if reserved == nil || reserved.Status != metav1.ConditionFalse {
		return Notice{}
	}
	if missing, is := strings.CutSuffix(strings.TrimPrefix(reserved.Message, "LocalQueue "), " doesn't exist"); is {
		// Held by its user, who knows, or was until now. A LocalQueue that is there after all has its own troubles.
		if _, is := trainjob.HeldFrom(missing); is {
			return Notice{}
		}
	}
	switch reserved.Reason {
	case kueue.WorkloadInadmissible, kueue.WorkloadQuotaReservedReasonMisconfigured, kueue.WorkloadQuotaReservedReasonSuspended:
		return Notice{Reason: ReasonNotAdmissible, Message: fmt.Sprintf("cannot be admitted: %s%s", reserved.Message, queueRemedy(wl, reserved.Message))}
	}
	return Notice{}
}

// queueRemedy goes by Kueue's words, since its reasons do not tell the queues apart.
func queueRemedy(wl *kueue.Workload, message string) string {
	local := strings.HasPrefix(message, "LocalQueue ")
	switch {
	case local && strings.HasSuffix(message, "doesn't exist"):
		return fmt.Sprintf("; create it in namespace %s, or name another in label %s of the TrainJob", wl.Namespace, kueueconstants.QueueLabel)
	case local:
		return "; it starts again with spec.stopPolicy None, if its ClusterQueue is active"
	case strings.HasPrefix(message, "ClusterQueue ") && strings.HasSuffix(message, "doesn't exist"):
		return "; create it, or name another in the spec.clusterQueue of a new LocalQueue"
	case strings.HasPrefix(message, "ClusterQueue "):
		return "; its condition Active says why, spec.stopPolicy among other things"
	}
	return ""
}

// NoticeFor returns the notice of the Workload of a job that is not finished, or else of the last one.
func NoticeFor(workloads []*kueue.Workload) Notice {
	var out Notice
	for _, wl := range workloads {
		if n := noticeOf(wl); out.Reason == "" || !kueuelib.IsFinished(wl) {
			out = n
		}
	}
	return out
}

// Placed says where an admission sends a job: queue, ClusterQueue, and the
// flavor of every PodSet.
func Placed(wl *kueue.Workload) string {
	admission := wl.Status.Admission
	parts := kueuelib.Map(admission.PodSetAssignments, assignmentMessage)
	return kueuelib.TruncateEvent(fmt.Sprintf("Admitted from queue %s by ClusterQueue %s: %s",
		wl.Spec.QueueName, admission.ClusterQueue, strings.Join(parts, "; ")))
}

// Dispatched says in which cluster a job runs, and what it is charged to in this one.
func Dispatched(wl *kueue.Workload) string {
	where := "another cluster"
	if name := ptr.Deref(wl.Status.ClusterName, ""); name != "" {
		where = "cluster " + name
	}
	return fmt.Sprintf("Admitted from queue %s by ClusterQueue %s, and runs in %s", wl.Spec.QueueName, wl.Status.Admission.ClusterQueue, where)
}

func assignmentMessage(a *kueue.PodSetAssignment) string {
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
	return fmt.Sprintf("%s %s on %s", a.Name, Count(ptr.Deref(a.Count, 0), "pod"), strings.Join(flavors, ", "))
}

// Count returns a number of things in words: 1 pod, 2 pods.
func Count(n int32, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
