// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
)

// selection is which containers somebody asked for.
type selection struct {
	// job is a replicated job; empty for all.
	job string
	// index is that of a pod in its Job; negative for all.
	index int
	// container is empty for all but init containers.
	container string
}

// target is a container whose log is wanted.
type target struct {
	pod *corev1.Pod
	// open opens logs of the pod's cluster.
	open      opener
	container string
	// prefix names replicated job, replica and index: node-0-1; and the container where the
	// pod has several that are wanted.
	prefix string
	// started is set where there is a log.
	started bool
	// ended is set where nothing will be written any more.
	ended bool
	// waits is why there is none yet.
	waits string
	// restarts counts the runs before.
	restarts int32
}

// log tells containers apart, whichever run of theirs.
func (t *target) log() string { return fmt.Sprintf("%s/%s", t.pod.UID, t.container) }

// targets returns the containers of pods of one cluster, in order of replicated job, replica and
// index.
func (s selection) targets(pods []corev1.Pod, open opener) []target {
	pods = slices.Clone(pods)
	slices.SortFunc(pods, func(a, b corev1.Pod) int {
		return cmp.Or(
			cmp.Compare(a.Labels[jobsetapi.ReplicatedJobNameKey], b.Labels[jobsetapi.ReplicatedJobNameKey]),
			cmp.Compare(number(a.Labels[jobsetapi.JobIndexKey]), number(b.Labels[jobsetapi.JobIndexKey])),
			cmp.Compare(number(a.Labels[batchv1.JobCompletionIndexAnnotation]), number(b.Labels[batchv1.JobCompletionIndexAnnotation])),
			a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
			cmp.Compare(a.Name, b.Name),
		)
	})
	var out []target
	for i := range pods {
		ofJob := s.job == "" || pods[i].Labels[jobsetapi.ReplicatedJobNameKey] == s.job
		if ofJob && (s.index < 0 || number(pods[i].Labels[batchv1.JobCompletionIndexAnnotation]) == s.index) {
			out = append(out, s.containersOf(&pods[i], open)...)
		}
	}
	return out
}

// number is that of an index; pods without one, of Jobs that are not indexed, have 0.
func number(text string) int {
	n, _ := strconv.Atoi(text)
	return n
}

func (s selection) containersOf(pod *corev1.Pod, open opener) []target {
	wanted := pod.Spec.Containers
	if s.container != "" {
		wanted = slices.DeleteFunc(slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers), func(c corev1.Container) bool { return c.Name != s.container })
	}
	name := fmt.Sprintf("%s-%d-%d", cmp.Or(pod.Labels[jobsetapi.ReplicatedJobNameKey], pod.Name),
		number(pod.Labels[jobsetapi.JobIndexKey]), number(pod.Labels[batchv1.JobCompletionIndexAnnotation]))
	var out []target
	for i := range wanted {
		t := target{pod: pod, open: open, container: wanted[i].Name, prefix: name}
		if len(wanted) > 1 {
			t.prefix += " " + t.container
		}
		t.state()
		out = append(out, t)
	}
	return out
}

// state tells whether the container has begun, and what it waits for.
func (t *target) state() {
	t.waits = string(t.pod.Status.Phase)
	t.ended = podset.PodEnded(t.pod)
	for _, status := range slices.Concat(t.pod.Status.InitContainerStatuses, t.pod.Status.ContainerStatuses) {
		if status.Name != t.container {
			continue
		}
		t.restarts = status.RestartCount
		t.started = status.State.Running != nil || status.State.Terminated != nil
		t.ended = t.ended || status.State.Terminated != nil && t.pod.Spec.RestartPolicy == corev1.RestartPolicyNever
		if w := status.State.Waiting; w != nil {
			t.waits = w.Reason
			// What it ran before is there, such as that of one in CrashLoopBackOff.
			t.started = status.LastTerminationState.Terminated != nil
		}
	}
	for _, c := range t.pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			t.waits = c.Reason
		}
	}
}
