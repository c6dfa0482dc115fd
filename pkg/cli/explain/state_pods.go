// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/workload"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
)

// reserving is for a job that has quota and is not admitted.
func reserving(f *Facts) *State {
	if workload.IsAdmitted(f.Workload) {
		return nil
	}
	s := &State{Phase: Reserved, Reason: "AdmissionCheckPending", Message: fmt.Sprintf("has quota in %s (%s) and waits to be admitted", f.queueText(), f.assignment())}
	if c := f.condition(kueue.WorkloadQuotaReserved); c != nil {
		s.Since = since(c.LastTransitionTime)
	}
	var waits []string
	for _, check := range f.Workload.Status.AdmissionChecks {
		if check.State == kueue.CheckStateReady {
			continue
		}
		text := fmt.Sprintf("admission check %s is %s", check.Name, check.State)
		if check.Message != "" {
			text += " (" + check.Message + ")"
		}
		if why := inactive(f.Cluster.check(check.Name)); why != "" && f.Cluster.Saw(checks) {
			r := checkInactive(string(check.Name), why)
			s.Reason, s.Remedy, s.Stuck = string(r.Code), r.Remedy, true
			text += ": " + r.Message
		}
		waits = append(waits, text)
	}
	if len(waits) > 0 {
		s.Message += ": " + strings.Join(waits, "; ")
	}
	return s
}

// assignment names what was given to each PodSet: "node on flavor h100".
func (f *Facts) assignment() string {
	if f.Workload.Status.Admission == nil {
		return "nothing assigned"
	}
	var parts []string
	for _, psa := range f.Workload.Status.Admission.PodSetAssignments {
		var names []string
		for _, resource := range sortedResources(psa.Flavors) {
			if flavor := string(psa.Flavors[resource]); !slices.Contains(names, flavor) {
				names = append(names, flavor)
			}
		}
		if len(names) > 0 {
			parts = append(parts, fmt.Sprintf("%s on flavor %s", psa.Name, strings.Join(names, " and ")))
		}
	}
	return cmp.Or(strings.Join(parts, ", "), "it needs no flavor")
}

// unplaced is for an admitted job that was not started yet.
func unplaced(f *Facts) *State {
	if !f.Job.Suspended() && (f.JobSet == nil || !ptr.Deref(f.JobSet.Spec.Suspend, false)) {
		return nil
	}
	admitted := f.condition(kueue.WorkloadAdmitted)
	s := &State{Phase: Starting, Reason: "Placing", Since: since(admitted.LastTransitionTime),
		Message: fmt.Sprintf("is admitted (%s) and about to be started", f.assignment())}
	told := f.warning("PlacementRefused", "JobSetOutdated", "WriteRefused", "InTreeActive", "TrainerUnknown")
	switch {
	case told != nil && !told.LastTimestamp.Time.Before(admitted.LastTransitionTime.Time):
		s.Reason, s.Stuck = told.Reason, true
		s.Message = fmt.Sprintf("is admitted (%s), holds its quota and cannot be started: %s", f.assignment(), told.Message)
	case f.overdue(admitted.LastTransitionTime):
		s.Reason, s.Stuck, s.Remedy = "NotStarted", true, "see that kueue-trainer and Trainer run: kubectl trainjob doctor"
		s.Message = fmt.Sprintf("was admitted (%s) %s ago, holds its quota and was not started", f.assignment(), show.Age(f.Now, admitted.LastTransitionTime.Time))
	}
	return s
}

// starting is for a job that was started, and whose pods do not all run.
func starting(f *Facts) *State {
	s := &State{Phase: Starting}
	if c := f.condition(kueue.WorkloadAdmitted); c != nil {
		s.Since = since(c.LastTransitionTime)
	}
	groups := podGroups(f.Pods)
	var missing []string
	for _, g := range groups {
		if g.blocked() {
			missing = append(missing, g.text())
			if s.Reason == "" {
				s.Reason, s.Remedy, s.Stuck = g.Reason, g.remedy(f), f.overdue(g.since)
				if r := f.misplaced(); r != nil && g.Reason == corev1.PodReasonUnschedulable {
					s.Reason, s.Remedy, s.Stuck = string(r.Code), r.Remedy, true
					missing = append(missing, r.Message)
				}
			}
		}
	}
	if made, wanted := f.podsMade(); made < wanted {
		missing = append(missing, fmt.Sprintf("%s not made yet", show.Count(int64(wanted-made), "pod")))
		s.Reason = cmp.Or(s.Reason, "PodsMissing")
		if s.Since != nil && f.overdue(*s.Since) && made == 0 {
			s.Stuck, s.Remedy = true, fmt.Sprintf("see what its Jobs say: kubectl -n %s describe jobs -l %s=%s", f.Job.Namespace, jobsetapi.JobSetNameKey, f.Job.Name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	s.Message = fmt.Sprintf("was started (%s), and %s", f.where(), strings.Join(missing, "; "))
	return s
}

// misplaced tells what is wrong with the flavors that the job has, or nil.
func (f *Facts) misplaced() *Reason {
	assigned, _ := split(Flavors(f), func(v Verdict) bool { return v.Assigned })
	return warnedOf(f.PodSets, assigned)
}

func (f *Facts) where() string {
	if f.Workload == nil {
		return "no flavor"
	}
	return f.assignment()
}

// podsMade counts the pods that are there, and those that the child Jobs want at a time.
// Jobs that are done count for neither, nor do Jobs behind a dependsOn, which come later.
func (f *Facts) podsMade() (made, wanted int32) {
	if len(f.Jobs) == 0 && f.JobSet != nil {
		return 0, firstPods(f.JobSet)
	}
	for i := range f.Jobs {
		job := &f.Jobs[i]
		if over(job) {
			continue
		}
		parallelism := ptr.Deref(job.Spec.Parallelism, 1)
		wanted += min(parallelism, ptr.Deref(job.Spec.Completions, parallelism))
		for j := range f.Pods {
			if f.Pods[j].Labels[batchv1.JobNameLabel] == job.Name {
				made++
			}
		}
	}
	return made, wanted
}

// firstPods counts the pods that a JobSet makes first.
func firstPods(js *jobsetapi.JobSet) int32 {
	var sum int32
	for i := range js.Spec.ReplicatedJobs {
		if rj := &js.Spec.ReplicatedJobs[i]; len(rj.DependsOn) == 0 {
			sum += rj.Replicas * podset.PodsPerReplica(rj)
		}
	}
	return sum
}

func over(job *batchv1.Job) bool {
	return slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Status == corev1.ConditionTrue && (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed)
	})
}

func running(f *Facts) State {
	s := State{Phase: Running, Reason: "Running", Message: fmt.Sprintf("runs with %s", show.Count(int64(len(f.livePods())), "pod"))}
	if f.Workload != nil {
		s.Message += fmt.Sprintf(" in %s: %s, %s", f.queueText(), needs(f.PodSets), f.assignment())
	}
	if c := f.condition(kueue.WorkloadAdmitted); c != nil {
		s.Since = since(c.LastTransitionTime)
	}
	return s
}

// PodGroup is pods of one Job that are in the same state.
type PodGroup struct {
	Job string `json:"job"`
	// State is the pods' phase, or what they hang on.
	State string `json:"state"`
	// Reason is one word: Running, Unschedulable, AdmissionGate, ImagePullBackOff.
	Reason string `json:"reason"`
	// Message is what scheduler or kubelet say.
	Message string   `json:"message,omitempty"`
	Pods    []string `json:"pods"`
	Nodes   []string `json:"nodes,omitempty"`

	since metav1.Time
}

// podGroups groups pods by Job and state, in order of their names.
func podGroups(pods []corev1.Pod) []PodGroup {
	pods = slices.Clone(pods)
	slices.SortFunc(pods, func(a, b corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	var groups []PodGroup
	for i := range pods {
		state, reason, message := podState(&pods[i])
		job := pods[i].Labels[batchv1.JobNameLabel]
		at := slices.IndexFunc(groups, func(g PodGroup) bool { return g.Job == job && g.Reason == reason && g.Message == message })
		if at < 0 {
			at = len(groups)
			groups = append(groups, PodGroup{Job: job, State: state, Reason: reason, Message: message, since: pods[i].CreationTimestamp})
		}
		groups[at].Pods = append(groups[at].Pods, pods[i].Name)
		if node := pods[i].Spec.NodeName; node != "" && !slices.Contains(groups[at].Nodes, node) {
			groups[at].Nodes = append(groups[at].Nodes, node)
		}
	}
	return groups
}

// podState tells what a pod does, or what keeps it from doing so.
func podState(pod *corev1.Pod) (state, reason, message string) {
	phase := string(pod.Status.Phase)
	switch {
	case pod.DeletionTimestamp != nil:
		return "Terminating", "Terminating", ""
	case pod.Status.Phase == corev1.PodRunning:
		if reason, message := waitingContainer(pod); reason != "" {
			return phase, reason, message
		}
		return phase, phase, ""
	case pod.Status.Phase != corev1.PodPending && phase != "":
		return phase, phase, pod.Status.Message
	case len(pod.Spec.SchedulingGates) > 0:
		return "Gated", gateReason(pod.Spec.SchedulingGates[0].Name), "scheduling gate " + pod.Spec.SchedulingGates[0].Name
	}
	if c := find(pod.Status.Conditions, func(c *corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse
	}); c != nil {
		return "Pending", cmp.Or(c.Reason, corev1.PodReasonUnschedulable), c.Message
	}
	if reason, message := waitingContainer(pod); reason != "" {
		return "Pending", reason, message
	}
	return "Pending", "Pending", ""
}

func gateReason(gate string) string {
	switch gate {
	case patch.AdmissionGate:
		return "AdmissionGate"
	case kueue.TopologySchedulingGate:
		return "TopologyGate"
	}
	return "SchedulingGate"
}

// waitingContainer gives why a container does not run, unless it is only being made.
func waitingContainer(pod *corev1.Pod) (reason, message string) {
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if w := status.State.Waiting; w != nil && w.Reason != "" && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing" {
			return w.Reason, cmp.Or(w.Message, "container "+status.Name+" waits")
		}
	}
	return "", ""
}

// blocked reports whether the pods have not got as far as running.
func (g PodGroup) blocked() bool {
	return !slices.Contains([]string{"Running", "Succeeded", "Failed", "Terminating"}, g.Reason)
}

func (g PodGroup) text() string {
	text := fmt.Sprintf("%s of Job %s: %s", show.Count(int64(len(g.Pods)), "pod"), g.Job, g.Reason)
	if g.Message != "" {
		first, _, _ := strings.Cut(g.Message, ". ")
		text += " (" + first + ")"
	}
	return text
}

func (g PodGroup) remedy(f *Facts) string {
	switch g.Reason {
	case "AdmissionGate":
		return "kueue-trainer frees them when their Workload is admitted: kubectl trainjob doctor tells whether it runs"
	case "TopologyGate":
		return "Kueue frees them: see that it runs with kubectl trainjob doctor"
	case "SchedulingGate":
		return "whoever set the gate has to take it off"
	case corev1.PodReasonUnschedulable:
		return "the quota is more than the nodes have room for: kubectl trainjob pools shows both"
	case "Pending":
		return ""
	}
	return fmt.Sprintf("kubectl -n %s describe pod %s", f.Job.Namespace, g.Pods[0])
}
