// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
)

const (
	making  = 5 * time.Minute  // how long a kubelet may mount volumes, set up the network, and pull small images
	pulling = 20 * time.Minute // how long it may pull an image; those for training have tens of gigabytes
	healed  = 10 * time.Minute // how long a container runs until the kubelet forgets that it crashed before
)

// Reasons of pods, those that a kubelet works on in its words.
const (
	containerCreating = "ContainerCreating"
	podInitializing   = "PodInitializing"
	crashLoop         = "CrashLoopBackOff"
	tooManyPods       = "TooManyPods"
)

// PodGroup is pods of one Job that are in the same state.
type PodGroup struct {
	Job      string   `json:"job"`
	State    string   `json:"state"`              // the pods' phase, or what they hang on
	Reason   string   `json:"reason"`             // one word: Running, Unschedulable, AdmissionGate, ImagePullBackOff
	Message  string   `json:"message,omitempty"`  // what scheduler or kubelet say
	Restarts int32    `json:"restarts,omitempty"` // the most of pods that crash over and over
	ExitCode *int32   `json:"exitCode,omitempty"` // how their last runs ended
	Pods     []string `json:"pods"`
	Nodes    []string `json:"nodes,omitempty"`

	due    time.Time // when the first of them counts as stuck, zero for never; and remedy what helps
	remedy string
}

// podGroups groups pods by Job and state, in order of their names.
func (f *Facts) podGroups() []PodGroup {
	pods := slices.Clone(f.Pods)
	slices.SortFunc(pods, func(a, b corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	var groups []PodGroup
	for i := range pods {
		found := f.podState(&pods[i])
		found.Job = pods[i].Labels[batchv1.JobNameLabel]
		at := slices.IndexFunc(groups, found.alike)
		if at < 0 {
			at = len(groups)
			groups = append(groups, found)
		}
		g := &groups[at]
		if found.Restarts > g.Restarts {
			g.Restarts, g.Message = found.Restarts, found.Message
		}
		if found.due.Before(g.due) {
			g.due, g.remedy = found.due, found.remedy
		}
		g.Pods = append(g.Pods, pods[i].Name)
		if node := pods[i].Spec.NodeName; node != "" && !slices.Contains(g.Nodes, node) {
			g.Nodes = append(g.Nodes, node)
		}
	}
	return groups
}

// alike reports whether pods are in the same state. Those that crash differ in how often they did, and in their last words.
func (g PodGroup) alike(o PodGroup) bool {
	if g.Reason == crashLoop && g.Restarts > 0 && o.Restarts > 0 && ptr.Equal(g.ExitCode, o.ExitCode) {
		o.Message = g.Message
	}
	return o.Job == g.Job && o.Reason == g.Reason && o.Message == g.Message
}

// podState tells what a pod does, or what keeps it from doing so.
func (f *Facts) podState(pod *corev1.Pod) PodGroup {
	phase := cmp.Or(pod.Status.Phase, corev1.PodPending)
	g := PodGroup{State: string(phase), Reason: string(phase), due: pod.CreationTimestamp.Add(patience), remedy: f.describe(pod)}
	crash, waits := f.crashing(pod), waitingContainer(pod)
	refused := find(pod.Status.Conditions, func(c *corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse
	})
	switch {
	case pod.DeletionTimestamp != nil:
		g.State, g.Reason = "Terminating", "Terminating"
	case phase != corev1.PodPending && phase != corev1.PodRunning:
		g.Message = pod.Status.Message
	case phase == corev1.PodPending && len(pod.Spec.SchedulingGates) > 0:
		gate := pod.Spec.SchedulingGates[0].Name
		g.State, g.Message = "Gated", "scheduling gate "+gate
		g.Reason, g.remedy = gated(gate)
	case crash != nil:
		crash.State, crash.due = g.State, g.due
		return *crash
	case waits != nil:
		g.Reason, g.Message = waits.Reason, waits.Message
	case phase == corev1.PodRunning:
	case refused != nil:
		g.Reason, g.Message = cmp.Or(refused.Reason, corev1.PodReasonUnschedulable), refused.Message
		if g.Reason == corev1.PodReasonUnschedulable {
			g.Reason, g.remedy = f.unschedulable(pod, refused.Message)
		}
		if g.Reason == tooManyPods {
			g.due = time.Time{}
		}
	case pod.Spec.NodeName != "":
		return f.beingMade(pod)
	case !slices.Contains([]string{"", corev1.DefaultSchedulerName}, pod.Spec.SchedulerName):
		g.Message = fmt.Sprintf("scheduler %s has not looked at it", pod.Spec.SchedulerName)
		g.remedy = fmt.Sprintf("see that scheduler %[1]s runs (kubectl get pods -A), or create the job again with a runtime without schedulerName %[1]s", pod.Spec.SchedulerName)
	default:
		g.remedy = ""
	}
	return g
}

func (f *Facts) describe(pod *corev1.Pod) string {
	return fmt.Sprintf("kubectl -n %s describe pod %s", f.Job.Namespace, pod.Name)
}

// beingMade is for a pod on a node whose containers do not run yet.
func (f *Facts) beingMade(pod *corev1.Pod) PodGroup {
	if name := initializing(pod); name != "" {
		return PodGroup{State: "Pending", Reason: podInitializing, Message: fmt.Sprintf("init container %s runs", name)}
	}
	begun := makingSince(pod)
	g := PodGroup{State: "Pending", Reason: containerCreating, due: begun.Add(making)}
	told := find(f.PodEvents, func(e *corev1.Event) bool { return e.InvolvedObject.UID == pod.UID && !eventTime(e).Before(begun) })
	switch {
	case told == nil && !f.Saw("events"):
		g.due = begun.Add(pulling)
	case told == nil:
	case told.Reason == ImagePulled:
		g.Message, g.due = told.Message, eventTime(told).Add(pulling)
	default:
		g.Message = told.Reason + ": " + told.Message
	}
	if g.stuck(f.Now) {
		g.remedy = f.describe(pod)
	}
	return g
}

// ImagePulled is the reason of the kubelet's event before it pulls an image.
const ImagePulled = "Pulling"

// unmadePod reports whether a kubelet has yet to make containers of a pod.
func unmadePod(pod corev1.Pod) bool {
	return pod.Spec.NodeName != "" && pod.Status.Phase == corev1.PodPending && pod.DeletionTimestamp == nil
}

// initializing names the init container that works; empty for none. A sidecar goes on beside the containers.
func initializing(pod *corev1.Pod) string {
	works := find(pod.Status.InitContainerStatuses, func(status *corev1.ContainerStatus) bool {
		of := find(pod.Spec.InitContainers, func(c *corev1.Container) bool { return c.Name == status.Name })
		return status.State.Running != nil && ptr.Deref(of, corev1.Container{}).RestartPolicy == nil
	})
	return ptr.Deref(works, corev1.ContainerStatus{}).Name
}

// makingSince is when the step that a kubelet works on began, by all that it has finished before.
func makingSince(pod *corev1.Pod) time.Time {
	finished := []time.Time{pod.CreationTimestamp.Time}
	for _, c := range pod.Status.Conditions {
		if c.Status == corev1.ConditionTrue {
			finished = append(finished, c.LastTransitionTime.Time)
		}
	}
	for _, status := range pod.Status.InitContainerStatuses {
		finished = append(finished, ptr.Deref(status.State.Terminated, corev1.ContainerStateTerminated{}).FinishedAt.Time)
	}
	return slices.MaxFunc(finished, time.Time.Compare)
}

// crashing is for a pod with a container that fails again and again, whether it runs just now or not;
// nil for none. A run that lasts longer than the last one may be the one that does not fail.
func (f *Facts) crashing(pod *corev1.Pod) *PodGroup {
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		last := cmp.Or(status.State.Terminated, status.LastTerminationState.Terminated)
		between := status.State.Waiting != nil && status.State.Waiting.Reason == crashLoop
		switch {
		case last == nil || last.ExitCode == 0 && !between:
			continue
		case between:
		case status.RestartCount < 2:
			continue
		case status.State.Running != nil:
			as := min(2*last.FinishedAt.Sub(last.StartedAt.Time)+patience, healed)
			if f.Now.Sub(status.State.Running.StartedAt.Time) > as {
				continue
			}
		}
		message := fmt.Sprintf("container %s was started again %s; the last run ended with exit code %d",
			status.Name, show.Count(status.RestartCount, "time"), last.ExitCode)
		if last.Reason != "" && last.Reason != "Error" && last.Reason != "Completed" {
			message += " (" + last.Reason + ")"
		}
		if lines := strings.Split(strings.TrimSpace(last.Message), "\n"); lines[0] != "" {
			message += ": " + lines[len(lines)-1]
		}
		return &PodGroup{Reason: crashLoop, Message: message, Restarts: status.RestartCount, ExitCode: &last.ExitCode,
			remedy: fmt.Sprintf("kubectl trainjob logs -n %s %s --previous", f.Job.Namespace, f.Job.Name)}
	}
	return nil
}

// gated is the reason of pods behind a scheduling gate, and what helps.
func gated(gate string) (reason, remedy string) {
	switch gate {
	case patch.AdmissionGate:
		return "AdmissionGate", "kueue-trainer frees them when their Workload is admitted: kubectl trainjob doctor tells whether it runs"
	case kueue.TopologySchedulingGate:
		return "TopologyGate", "Kueue frees them: see that it runs with kubectl trainjob doctor"
	}
	return "SchedulingGate", "whoever set the gate has to take it off"
}

// waitingContainer returns why a container does not run, unless it is only being made; nil for none.
func waitingContainer(pod *corev1.Pod) *corev1.ContainerStateWaiting {
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if w := status.State.Waiting; w != nil && w.Reason != "" && w.Reason != containerCreating && w.Reason != podInitializing {
			return &corev1.ContainerStateWaiting{Reason: w.Reason, Message: cmp.Or(w.Message, "container "+status.Name+" waits")}
		}
	}
	return nil
}

// blocked reports whether the pods have not got as far as running.
func (g PodGroup) blocked() bool {
	return !slices.Contains([]string{"Running", "Succeeded", "Failed", "Terminating"}, g.Reason)
}

func (g PodGroup) text() string {
	return fmt.Sprintf("%s of Job %s: %s", show.Count(len(g.Pods), "pod"), g.Job, g.why())
}

func (g PodGroup) why() string {
	if g.Message == "" {
		return g.Reason
	}
	return g.Reason + " (" + firstSentence(g.Message) + ")"
}

// stuck reports whether they have not got as far for longer than that takes.
func (g PodGroup) stuck(now time.Time) bool { return !g.due.IsZero() && now.After(g.due) }

// firstSentence is what of a long message is worth a line.
func firstSentence(message string) string {
	first, _, _ := strings.Cut(message, ". ")
	return first
}
