// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	configapi "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib/scheduler"
)

func (f *Facts) queueText() string {
	text := "queue " + f.queueName()
	if name := f.clusterQueueName(); name != "" {
		text += fmt.Sprintf(" (ClusterQueue %s)", name)
	}
	return text
}

// queueAway is for a job without quota whose queue admits nobody.
func queueAway(f *Facts) *State {
	s := first(f, localQueueAway, clusterQueueAway)
	if s == nil {
		return nil
	}
	s.Phase, s.Stuck, s.Since = Waiting, true, since(ptr.Deref(f.Workload, kueue.Workload{}).CreationTimestamp)
	return s
}

func localQueueAway(f *Facts) *State {
	queue, name := f.localQueue(), f.queueName()
	switch {
	case name == "":
		return &State{Reason: "NoQueue", Message: "names no queue, and Kueue holds it all the same (manageJobsWithoutQueueName)", Remedy: labelRemedy}
	case queue == nil && f.Cluster.Saw(inventory.LocalQueues):
		return &State{Reason: "LocalQueueMissing",
			Message: fmt.Sprintf("names LocalQueue %s, which does not exist in namespace %s", name, f.Job.Namespace),
			Remedy:  fmt.Sprintf("create it, or label the job with one that exists: %s", f.otherQueues())}
	case queue != nil && ptr.Deref(queue.Spec.StopPolicy, kueue.None) != kueue.None:
		return &State{Reason: "LocalQueueStopped",
			Message: fmt.Sprintf("waits in LocalQueue %s, which an admin has stopped (stopPolicy %s)", name, *queue.Spec.StopPolicy),
			Remedy:  fmt.Sprintf(`kubectl -n %s patch localqueue %s --type=merge -p '{"spec":{"stopPolicy":"None"}}'`, queue.Namespace, name)}
	}
	return nil
}

// otherQueues names the LocalQueues of the job's namespace that it could have instead of its own.
func (f *Facts) otherQueues() string {
	others := picked(f.Cluster.LocalQueues, func(q kueue.LocalQueue) bool {
		return q.Namespace == f.Job.Namespace && q.Name != f.queueName() && (!f.Cluster.Saw(inventory.ClusterQueues) || f.Cluster.ClusterQueue(q.Spec.ClusterQueue) != nil)
	})
	return cmp.Or(strings.Join(inventory.Names(inventory.Objects(others)), ", "), "namespace "+f.Job.Namespace+" has none")
}

func clusterQueueAway(f *Facts) *State {
	cq, name := f.clusterQueue(), f.clusterQueueName()
	// As for Kueue, no selector takes no namespace.
	takes, unclear := metav1.LabelSelectorAsSelector(ptr.Deref(cq, kueue.ClusterQueue{}).Spec.NamespaceSelector)
	switch {
	case cq == nil && (name == "" || !f.Cluster.Saw(inventory.ClusterQueues)):
		return clusterQueueUnseen(f)
	case cq == nil:
		return &State{Reason: "ClusterQueueMissing",
			Message: fmt.Sprintf("waits in LocalQueue %s, whose ClusterQueue %s does not exist", f.queueName(), name),
			Remedy:  fmt.Sprintf("create ClusterQueue %s, or name another LocalQueue: %s", name, f.otherQueues())}
	case !cq.DeletionTimestamp.IsZero():
		return &State{Reason: "ClusterQueueDeleted",
			Message: fmt.Sprintf("waits in %s, and the ClusterQueue is being deleted: it goes with its last Workload", f.queueText()),
			Remedy:  fmt.Sprintf("create ClusterQueue %[1]s again when it is gone (kubectl get clusterqueue %[1]s), or name another LocalQueue: %[2]s", name, f.otherQueues())}
	case ptr.Deref(cq.Spec.StopPolicy, kueue.None) != kueue.None:
		return &State{Reason: "ClusterQueueStopped",
			Message: fmt.Sprintf("waits in %s, and the ClusterQueue is stopped by an admin (stopPolicy %s)", f.queueText(), *cq.Spec.StopPolicy),
			Remedy:  fmt.Sprintf(`kubectl patch clusterqueue %s --type=merge -p '{"spec":{"stopPolicy":"None"}}'`, cq.Name)}
	case inventory.Inactive(cq) != nil:
		return &State{Reason: "ClusterQueueInactive",
			Message: fmt.Sprintf("waits in %s, and the ClusterQueue is not active: %s", f.queueText(), inventory.Inactive(cq).Message),
			Remedy:  "fix what the ClusterQueue names: kubectl describe clusterqueue " + cq.Name}
	case f.Namespace != nil && unclear == nil && !takes.Matches(labels.Set(f.Namespace.Labels)):
		return &State{Reason: "NamespaceNotAllowed",
			Message: fmt.Sprintf("waits in %s, whose namespaceSelector does not take namespace %s", f.queueText(), f.Job.Namespace),
			Remedy:  fmt.Sprintf("label the namespace as spec.namespaceSelector of ClusterQueue %s wants it, or widen the selector", cq.Name)}
	}
	return nil
}

// clusterQueueUnseen goes by what the LocalQueue says of its ClusterQueue, which users may not see.
func clusterQueueUnseen(f *Facts) *State {
	queue := ptr.Deref(f.localQueue(), kueue.LocalQueue{})
	active := apimeta.FindStatusCondition(queue.Status.Conditions, kueue.LocalQueueActive)
	if active == nil || active.Status == metav1.ConditionTrue {
		return nil
	}
	return &State{Reason: "LocalQueueInactive",
		Message: fmt.Sprintf("waits in %s, and the LocalQueue is not active: %s", f.queueText(), active.Message),
		Remedy:  "ask an admin to look at the ClusterQueue: kubectl describe clusterqueue " + string(queue.Spec.ClusterQueue)}
}

// waiting is for a job without quota in a queue that works.
func waiting(f *Facts) *State {
	s := f.why()
	s.Phase, s.Since = Waiting, since(f.Workload.CreationTimestamp)
	s.Message = fmt.Sprintf("waits in %s: needs %s, %s", f.queueText(), needs(f.PodSets), s.Message)
	if p := f.Place(); p != nil {
		s.Message += ", " + p.text()
	}
	if evicted := f.condition(kueue.WorkloadEvicted); evicted != nil {
		s.Message += "; it " + eviction(f, evicted) + " " + show.Age(f.Now, evicted.LastTransitionTime.Time) + " ago"
		s.Since = since(evicted.LastTransitionTime)
	}
	return s
}

// why tells why a Workload has no quota: something about itself, or about the flavors.
func (f *Facts) why() *State {
	if s := heldBack(f); s != nil {
		return s
	}
	if f.clusterQueue() == nil {
		return f.kueueSays(inventory.ClusterQueues, "the ClusterQueue")
	}
	d := f.forecast()
	switch {
	case d != nil && d.Outcome == scheduler.Admits:
		return f.notYet(assignmentText(d.Admission))
	case d != nil && d.Outcome == scheduler.Preempts:
		return &State{Reason: "Preempts", Message: "and Kueue is about to make room by preempting " + victimsText(d)}
	}
	return f.refused(d)
}

// kueueSays is for who may not see what would tell more than Kueue's own words.
func (f *Facts) kueueSays(hidden, what string) *State {
	says := "and Kueue has not looked at it yet"
	if why := scheduler.WhyWaiting(f.Workload); why != "" {
		says = "and Kueue says: " + why
	}
	return &State{Reason: Unseen, Hidden: hidden, Message: says, Remedy: "ask an admin to run this command: you may not see " + what}
}

// refused tells why Kueue lets a job wait: by who is in front, by the flavors or, where these would do, in Kueue's words.
func (f *Facts) refused(d *scheduler.Decision) *State {
	if d != nil && d.Outcome == scheduler.Blocks {
		return f.behind(d)
	}
	verdicts := Flavors(f)
	assignment, ok := assignable(verdicts)
	switch {
	case !ok:
		s := lacking(verdicts)
		if s.Reason == string(NotInQueue) && f.countsOtherwise() {
			return f.kueueSays(f.KueueUnseen, "Kueue's configuration")
		}
		return s
	case d == nil && !f.seesQueues():
		return f.kueueSays(f.unseenQueues())
	case d == nil:
		return f.notYet(assignment)
	case d.Behind != nil:
		return &State{Reason: string(InUse), Remedy: "wait" + f.above(d.Behind, "before it"),
			Message: fmt.Sprintf("which would fit (%s), but Kueue keeps it for %s: %s", assignment, frontText(d.Behind), d.Message)}
	case d.Before != nil:
		return &State{Reason: "BehindOthers", Remedy: "wait" + f.above(d.Before, "before it"),
			Message: fmt.Sprintf("which would fit (%s), but Kueue gives it to %s first", assignment, inventory.JobName(d.Before))}
	}
	s := &State{Reason: string(InUse), Message: "Kueue would say: " + cmp.Or(d.Message, "others are before it"), Remedy: f.quotaRemedy()}
	if refusedForGood.MatchString(d.Message) && !strings.Contains(d.Message, "insufficient unused quota") {
		s.Reason, s.Stuck = KueueRefuses, true
		s.Remedy = fmt.Sprintf("put right what Kueue says, in the job's runtime or patch, or in ClusterQueue %s and its flavors", f.clusterQueueName())
	}
	return s
}

// countsOtherwise reports whether Kueue, by settings that are not seen, does not count what has no quota: it says something else.
func (f *Facts) countsOtherwise() bool {
	if f.KueueUnseen == "" || f.Workload == nil {
		return false
	}
	says := scheduler.WhyWaiting(f.Workload)
	return says != "" && !strings.Contains(says, "unavailable in ClusterQueue")
}

// refusedForGood is what Kueue says where no quota that comes free helps.
var refusedForGood = regexp.MustCompile(`unavailable in ClusterQueue|untolerated taint|doesn't match node affinity|flavor \S+ not found|maximum capacity`)

// heldBack tells of what keeps a Workload from quota whatever there is; nil for nothing.
func heldBack(f *Facts) *State {
	wl := f.Workload
	if wl == nil {
		return nil
	}
	retry, classless := wl.Status.RequeueState, f.classMissing()
	requeued := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadRequeued)
	failed := find(wl.Status.AdmissionChecks, func(c *kueue.AdmissionCheckState) bool {
		return c.State == kueue.CheckStateRejected || c.State == kueue.CheckStateRetry
	})
	switch {
	case runtimeMissing(f.Undescribed):
		return &State{Reason: "RuntimeMissing", Stuck: true, Message: "and its pods cannot be told any more: " + f.Undescribed.Error()}
	case classless != nil:
		classless.Message = "and " + classless.Message + ": it does not start before that does"
		return classless
	case failed != nil:
		return &State{Reason: "AdmissionCheck" + string(failed.State), Stuck: failed.State == kueue.CheckStateRejected,
			Message: fmt.Sprintf("and admission check %s says %s: %s", failed.Name, failed.State, failed.Message)}
	case kueuelib.IsLeftBehind(wl):
		return &State{Reason: "NotRequeued", Stuck: true, Remedy: f.anotherWorkload(),
			Message: "and was activated after Kueue had deactivated it, which Kueue does not queue again"}
	case requeued != nil && requeued.Status == metav1.ConditionFalse && requeued.Reason == kueue.WorkloadInadmissible:
		return &State{Reason: KueueRefuses, Stuck: true, Message: "and Kueue does not queue it: " + cmp.Or(scheduler.WhyWaiting(wl), requeued.Message),
			Remedy: "put right what Kueue says, in the resource claims of the job's runtime, or in deviceClassMappings of Kueue's configuration"}
	case kueuelib.HasAdmissionGate(wl):
		return &State{Reason: "AdmissionGated", Message: "and is held back by annotation kueue.x-k8s.io/admission-gated-by",
			Remedy: "whoever set the annotation has to take it off", Stuck: true}
	case retry != nil && retry.RequeueAt != nil && retry.RequeueAt.After(f.Now):
		return &State{Reason: "Backoff", Message: fmt.Sprintf("and is tried again in %s", show.Age(retry.RequeueAt.Time, f.Now))}
	case scheduler.IsPreempting(wl):
		return &State{Reason: "Preempting", Message: "and Kueue is stopping others for it"}
	}
	return nil
}

// notYet is for a job that fits: Kueue has not looked, looks at others first, or goes by more than what is seen here.
func (f *Facts) notYet(assignment string) *State {
	cq, p, unready := f.clusterQueue(), f.Place(), f.unready()
	quotaReserved := apimeta.FindStatusCondition(f.Workload.Status.Conditions, kueue.WorkloadQuotaReserved)
	switch {
	case cq.Spec.QueueingStrategy == kueue.StrictFIFO && p != nil && p.Place > 1:
		before := "another job" // Kueue's own answer says how many are in front, and not who.
		if len(p.Ahead) > 0 {
			before = p.Ahead[0]
		}
		return &State{Reason: "BehindOthers",
			Message: fmt.Sprintf("which would fit (%s), but ClusterQueue %s is strictly first in, first out and %s is before it", assignment, cq.Name, before),
			Remedy:  fmt.Sprintf("wait, or set queueingStrategy of ClusterQueue %s to BestEffortFIFO", cq.Name)}
	case unready != nil:
		return &State{Reason: kueue.WorkloadQuotaReservedReasonWaitingForPodsReady, Remedy: "wait, or see why they are not ready",
			Message: fmt.Sprintf("which would fit (%s), but Kueue admits nobody before the pods of %s are ready (waitForPodsReady.blockAdmission)", assignment, inventory.JobName(unready))}
	case quotaReserved == nil && f.overdue(f.Workload.CreationTimestamp) && !f.looksAtOthers():
		return &State{Reason: "KueueSilent", Stuck: true,
			Message: fmt.Sprintf("which would fit (%s), and Kueue has not looked at it for %s", assignment, show.Age(f.Now, f.Workload.CreationTimestamp.Time)),
			Remedy:  fmt.Sprintf("see that Kueue runs (kubectl -n %s get pods); if it does, %s", cluster.WithDefaults(f.Manager).KueueConfigMap.Namespace, f.lookAgain())}
	}
	if says := scheduler.WhyWaiting(f.Workload); says != "" && quotaReserved.Reason != kueue.WorkloadQuotaReservedReasonPendingEvaluation && f.overdue(quotaReserved.LastTransitionTime) {
		// Quota that is free for a moment only is told so, too: when Kueue looked last, a Workload does not say.
		again := "if Kueue goes on saying so"
		if f.Now.Sub(quotaReserved.LastTransitionTime.Time) > asleep {
			again = f.lookAgain() + "; if it says so again"
		}
		return &State{Reason: KueueRefuses, Message: fmt.Sprintf("which would fit by what is seen here (%s), but Kueue says: %s", assignment, says),
			Remedy: fmt.Sprintf("%s, look for what else it goes by, such as defaults of a LimitRange: kubectl -n %s describe limitranges", again, f.Job.Namespace)}
	}
	return &State{Reason: Evaluating, Message: fmt.Sprintf("which fits now (%s): Kueue looks at it soon", assignment)}
}

// unready is one that has quota and pods that are not ready, where Kueue admits nobody else before they are; nil for none.
func (f *Facts) unready() *kueue.Workload {
	says := func(wl *kueue.Workload) bool {
		return strings.Contains(scheduler.WhyWaiting(wl), "to be in PodsReady condition")
	}
	settings := ptr.Deref(ptr.Deref(f.Kueue, configapi.Configuration{}).WaitForPodsReady, configapi.WaitForPodsReady{})
	if !ptr.Deref(settings.BlockAdmission, false) && (f.Kueue != nil || find(f.Cluster.Workloads, says) == nil) {
		return nil
	}
	return find(f.Cluster.Workloads, func(wl *kueue.Workload) bool {
		return kueuelib.HasQuotaReservation(wl) && !kueuelib.IsFinished(wl) && state.True(wl, kueue.WorkloadPodsReady) == nil
	})
}

// looksAtOthers reports whether Kueue has just looked at another of the ClusterQueue: it looks at one at a time.
func (f *Facts) looksAtOthers() bool {
	return find(f.Cluster.Workloads, func(wl *kueue.Workload) bool {
		looked := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadQuotaReserved)
		return looked != nil && !f.overdue(looked.LastTransitionTime) && f.Cluster.ClusterQueueOf(wl) == f.clusterQueueName()
	}) != nil
}

// asleep is how long Kueue may take to look at those again whom it has refused.
const asleep = 3 * time.Minute

// lookAgain is how to wake Kueue: 0.19 looks at nobody when quota of a LocalQueue comes free that was deleted before.
func (f *Facts) lookAgain() string {
	return fmt.Sprintf("have it look again: kubectl edit clusterqueue %s, change a nominalQuota by one, and change it back", f.clusterQueueName())
}

var preemptor = regexp.MustCompile(`UID: ([^,)]+), JobUID: ([^,)]+)`)

// eviction tells of an eviction in words, by whom included where that can be seen.
func eviction(f *Facts, evicted *metav1.Condition) string {
	switch evicted.Reason {
	case kueue.WorkloadEvictedByPreemption:
		text := "was preempted"
		if ids := preemptor.FindStringSubmatch(evicted.Message); ids != nil {
			by := find(f.Cluster.Workloads, func(wl *kueue.Workload) bool {
				return slices.Contains(ids, string(wl.UID)) || slices.Contains(ids, string(ownerOf(wl)))
			})
			if by != nil {
				text += " by " + inventory.JobName(by)
			}
		}
		if c := f.condition(kueue.WorkloadPreempted); c != nil {
			text += " (" + preemptions[c.Reason].of + ")"
		}
		return text
	case kueue.WorkloadEvictedByPodsReadyTimeout:
		return "was stopped because its pods did not get ready in time"
	case kueue.WorkloadEvictedByAdmissionCheck:
		return "was stopped by an admission check: " + evicted.Message
	case kueue.WorkloadEvictedByClusterQueueStopped, kueue.WorkloadEvictedByLocalQueueStopped:
		return "was stopped with its queue"
	case kueue.WorkloadEvictedDueToNodeFailures:
		return "was stopped because a node failed"
	}
	return "was stopped: " + evicted.Message
}

// preemptions says in words what the reasons of condition Preempted mean, for one that was stopped and for one that is to be.
var preemptions = map[string]struct{ of, toBe string }{
	kueue.InClusterQueueReason:                {"for its higher priority in the ClusterQueue", "lower in the same queue"},
	kueue.InCohortReclamationReason:           {"its ClusterQueue reclaimed lent quota", "on quota lent to it"},
	kueue.InCohortFairSharingReason:           {"fair sharing in the cohort", "above its fair share"},
	kueue.InCohortReclaimWhileBorrowingReason: {"for its higher priority in the cohort", "lower in the cohort"},
}
