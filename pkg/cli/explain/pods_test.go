// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestStateOfPods(t *testing.T) {
	const (
		creating = "ContainerCreating"
		loop     = "CrashLoopBackOff"
		describe = "kubectl -n team describe pod llm-node-0-0"
		previous = "kubectl trainjob logs -n team llm --previous"
		pulling  = fourPods + creating + ` (Pulling image "torch")`
		unset    = fourPods + creating + ` (FailedMount: configmap "data" not found)`
	)
	pods := func(change ...func(*corev1.Pod)) func(*scene) {
		return withPods(4, func(p *corev1.Pod) {
			for _, do := range change {
				do(p)
			}
		})
	}
	eachScene(t, "state", map[string]row[State]{
		"being made": given(admitted, pods(onNode(1))).is(Starting, creating, fourPods+creating, ""),
		"that no scheduler looks at": given(admitted, pods(func(p *corev1.Pod) { p.Spec.SchedulerName = "volcano" })).stuck(Starting, "Pending",
			fourPods+"Pending (scheduler volcano has not looked at it)",
			"see that scheduler volcano runs (kubectl get pods -A), or create the job again with a runtime without schedulerName volcano"),
		"that the default scheduler has not looked at": given(admitted, pods(func(p *corev1.Pod) { p.Spec.SchedulerName = "default-scheduler" })).stuck(Starting, "Pending",
			fourPods+"Pending", ""),
		"being made for longer than that takes": given(admitted, pods(onNode(6))).stuck(Starting, creating, fourPods+creating, describe),
		"being made, and who knows of an image": given(admitted, pods(onNode(6)), func(s *scene) { s.Unseen = []string{"events"} }).is(
			Starting, creating, fourPods+creating, ""),
		"whose image is pulled": given(admitted, pods(onNode(7)), toldOfPods("Pulling", `Pulling image "torch"`, 6)).is(Starting, creating, pulling, ""),
		"whose image is pulled for longer than that takes": given(admitted, pods(onNode(30)), toldOfPods("Pulling", `Pulling image "torch"`, 29)).stuck(
			Starting, creating, pulling, describe),
		"that lack a volume for a moment": given(admitted, pods(onNode(1)), toldOfPods("FailedMount", `configmap "data" not found`, 0)).is(
			Starting, creating, unset, ""),
		"that lack a volume": given(admitted, pods(onNode(6)), toldOfPods("FailedMount", `configmap "data" not found`, 0)).stuck(Starting, creating, unset, describe),
		"whose init container works": given(admitted, pods(onNode(60), func(p *corev1.Pod) {
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "fetch", State: stateRunning(60)}}
		})).is(Starting, "PodInitializing", fourPods+"PodInitializing (init container fetch runs)", ""),
		"being made beside a sidecar": given(admitted, pods(onNode(6), func(p *corev1.Pod) {
			always := corev1.ContainerRestartPolicyAlways
			p.Spec.InitContainers = []corev1.Container{{Name: "proxy", RestartPolicy: &always}}
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "proxy", State: stateRunning(6)}}
		})).stuck(Starting, creating, fourPods+creating, describe),
		"being made since an init container has ended": given(admitted, pods(onNode(60), func(p *corev1.Pod) {
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "fetch", State: stateExited(0, 1, "")}}
		})).is(Starting, creating, fourPods+creating, ""),
		"that crash and wait to be started again": given(admitted, pods(onNode(5), crashed(5, stateWaiting(loop), stateExited(1, 1, "loading\nno such file: /data\n")))).stuck(
			Starting, loop, fourPods+"CrashLoopBackOff (container node was started again 5 times; the last run ended with exit code 1: no such file: /data)",
			previous),
		"that crash and run between": given(admitted, pods(onNode(5), crashed(5, stateRunning(0), stateExited(137, 1, "")))).stuck(Starting, loop,
			fourPods+"CrashLoopBackOff (container node was started again 5 times; the last run ended with exit code 137 (OOMKilled))", previous),
		"that crash and have just ended": given(admitted, pods(onNode(5), crashed(5, stateExited(2, 0, ""), stateExited(1, 1, "")))).stuck(
			Starting, loop, fourPods+"CrashLoopBackOff (container node was started again 5 times; the last run ended with exit code 2)", previous),
		"that crash, one more often": given(admitted, withPods(4, func(p *corev1.Pod) {
			onNode(5)(p)
			crashed(2, stateWaiting(loop), stateExited(1, 1, "of "+p.Name))(p)
		}), func(s *scene) { s.Pods[2].Status.ContainerStatuses[0].RestartCount = 8 }).stuck(Starting, loop,
			fourPods+"CrashLoopBackOff (container node was started again 8 times; the last run ended with exit code 1: of llm-node-0-2)", previous),
		"that crashed once":               given(admitted, pods(onNode(5), crashed(1, stateRunning(1), stateExited(1, 1, "")))).is(Running, "Running", runs4, ""),
		"that crashed and run longer now": given(admitted, pods(onNode(9), crashed(5, stateRunning(4), stateExited(1, 5, "")))).is(Running, "Running", runs4, ""),
		"being made, beside some that cannot be": given(admitted, withPods(3, onNode(1)), withPods(1, func(p *corev1.Pod) {
			p.Name = "llm-node-0-3"
			onNode(1)(p)
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "node", State: stateWaiting("ImagePullBackOff")}}
		})).stuck(Starting, "ImagePullBackOff",
			"was started (node on flavor h100), and 3 pods of Job llm-node-0: ContainerCreating; 1 pod of Job llm-node-0: ImagePullBackOff (container node waits)",
			"kubectl -n team describe pod llm-node-0-3"),
	}, StateOf, cmpopts.IgnoreFields(State{}, "Since", "Cause"))
}

func TestPodGroupOfACrashLoop(t *testing.T) {
	f := newScene(admitted, withPods(2, crashed(3, stateWaiting("CrashLoopBackOff"), stateExited(1, 1, "lost")))).facts(t)
	got := f.podGroups()
	want := []PodGroup{{
		Job: "llm-node-0", State: "Running", Reason: "CrashLoopBackOff", Restarts: 3, ExitCode: new(int32(1)), Pods: []string{"llm-node-0-0", "llm-node-0-1"},
		Message: "container node was started again 3 times; the last run ended with exit code 1: lost",
	}}
	expect.Same(t, "Unexpected groups", want, got, cmpopts.IgnoreUnexported(PodGroup{}))
}

// onNode is a pod that was bound some minutes ago, and whose containers are to be made.
func onNode(minutes int) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.UID, p.Spec.NodeName, p.CreationTimestamp = types.UID(p.Name), "h100-0", minutesAgo(minutes)
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: minutesAgo(minutes)}}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "node", State: stateWaiting("ContainerCreating")}}
	}
}

// toldOfPods is an event of the kubelet about each pod.
func toldOfPods(reason, message string, minutes int) func(*scene) {
	return func(s *scene) {
		for i := range s.Pods {
			s.PodEvents = append(s.PodEvents, corev1.Event{
				InvolvedObject: corev1.ObjectReference{UID: s.Pods[i].UID}, Reason: reason, Message: message, LastTimestamp: minutesAgo(minutes),
			})
		}
	}
}

// crashed is a pod whose container was started again.
func crashed(restarts int32, now, last corev1.ContainerState) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodRunning
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "node", RestartCount: restarts, State: now, LastTerminationState: last}}
	}
}

func stateWaiting(reason string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
}

func stateRunning(minutes int) corev1.ContainerState {
	return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: minutesAgo(minutes)}}
}

// stateExited is a run of a minute that ended some minutes ago.
func stateExited(code int32, minutes int, message string) corev1.ContainerState {
	reason := "Error"
	if code == 137 {
		reason = "OOMKilled"
	}
	end := minutesAgo(minutes)
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: code, Reason: reason, Message: message, StartedAt: metav1.NewTime(end.Add(-time.Minute)), FinishedAt: end,
	}}
}
