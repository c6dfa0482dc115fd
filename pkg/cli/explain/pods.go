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
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
)

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
		reason := cmp.Or(c.Reason, corev1.PodReasonUnschedulable)
		if reason == corev1.PodReasonUnschedulable {
			reason, _ = unschedulable(c.Message)
		}
		return "Pending", reason, c.Message
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

// waitingContainer returns why a container does not run, unless it is only being made.
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
		text += " (" + firstSentence(g.Message) + ")"
	}
	return text
}

// firstSentence is what of a long message is worth a line.
func firstSentence(message string) string {
	first, _, _ := strings.Cut(message, ". ")
	return first
}

func (g PodGroup) remedy(f *Facts) string {
	switch g.Reason {
	case "AdmissionGate":
		return "kueue-trainer frees them when their Workload is admitted: kubectl trainjob doctor tells whether it runs"
	case "TopologyGate":
		return "Kueue frees them: see that it runs with kubectl trainjob doctor"
	case "SchedulingGate":
		return "whoever set the gate has to take it off"
	case corev1.PodReasonUnschedulable, "VolumeClaimMissing", "VolumeClaimUnbound", "TooManyPods":
		_, remedy := unschedulable(g.Message)
		return remedy
	case "Pending":
		return ""
	}
	return fmt.Sprintf("kubectl -n %s describe pod %s", f.Job.Namespace, g.Pods[0])
}
