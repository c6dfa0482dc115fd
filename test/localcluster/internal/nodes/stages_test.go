// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/kwok/pkg/apis/internalversion"
	"sigs.k8s.io/kwok/pkg/config"
	"sigs.k8s.io/kwok/pkg/utils/gotpl"
	"sigs.k8s.io/kwok/pkg/utils/lifecycle"
)

// is a pod that started a minute ago, with annotations of ours.
func is(phase corev1.PodPhase, annotations ...string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Annotations: map[string]string{}}}
	for i := 0; i < len(annotations); i += 2 {
		pod.Annotations["localcluster/"+annotations[i]] = annotations[i+1]
	}
	pod.Spec.Containers = []corev1.Container{{Name: "c"}}
	pod.Status.Phase, pod.Status.StartTime = phase, ptr.To(metav1.NewTime(time.Now().Add(-time.Minute)))
	return pod
}

// deleted has a pod be deleted ten seconds ago with 30 s of grace.
func deleted(pod *corev1.Pod) *corev1.Pod {
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = ptr.To(metav1.NewTime(time.Now().Add(20*time.Second))), ptr.To[int64](30)
	return pod
}

func TestPodStages(t *testing.T) {
	onlyWaits := deleted(is(corev1.PodFailed))
	onlyWaits.DeletionGracePeriodSeconds = ptr.To[int64](0)
	// What becomes of pods: the stage, after how many tens of seconds, the phase and the exit code that it ends with.
	cases := map[string]struct {
		pod  *corev1.Pod
		want []string
	}{
		"a bound pod gets ready at once":                         {is(corev1.PodPending), []string{"pod-ready 0"}},
		"a pod that is to fail runs first":                       {is(corev1.PodPending, "finish", "failed"), []string{"pod-ready 0"}},
		"a running pod is left alone":                            {is(corev1.PodRunning), nil},
		"finish: succeeded ends it":                              {is(corev1.PodRunning, "finish", "succeeded"), []string{"pod-end 0 Succeeded 0"}},
		"finish: failed ends it":                                 {is(corev1.PodRunning, "finish", "failed"), []string{"pod-end 0 Failed 1"}},
		"finish wins over run-for":                               {is(corev1.PodRunning, "finish", "failed", "run-for", "10s"), []string{"pod-end 0 Failed 1"}},
		"an unknown finish is ignored":                           {is(corev1.PodRunning, "finish", "maybe"), nil},
		"run-for counts from the start of the pod":               {is(corev1.PodRunning, "run-for", "1m10s"), []string{"pod-end 1 Succeeded 0"}},
		"a run-for that is no duration is ignored":               {is(corev1.PodRunning, "run-for", "10"), nil},
		"a succeeded pod is left alone":                          {is(corev1.PodSucceeded, "run-for", "10s"), nil},
		"a deleted pod terminates at once":                       {deleted(is(corev1.PodRunning)), []string{"pod-end 0 Failed 143"}},
		"a deleted pod forgets that it was to succeed":           {deleted(is(corev1.PodRunning, "finish", "succeeded")), []string{"pod-end 0 Failed 143"}},
		"terminate-after counts from the request":                {deleted(is(corev1.PodRunning, "terminate-after", "20s")), []string{"pod-end 1 Failed 143"}},
		"the grace period ends terminate-after":                  {deleted(is(corev1.PodRunning, "terminate-after", "1h")), []string{"pod-end 2 Failed 143"}},
		"a deleted pod that has ended just goes":                 {deleted(is(corev1.PodSucceeded)), []string{"pod-delete 0"}},
		"a deleted pod that never ran just goes":                 {deleted(is(corev1.PodPending)), []string{"pod-delete 0"}},
		"a pod that only waits for its finalizers is left alone": {onlyWaits, nil},
	}
	stages := podStages(t)
	lc, err := lifecycle.NewLifecycle(slices.Collect(maps.Values(stages)))
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			event := &lifecycle.Event{Labels: tc.pod.Labels, Annotations: tc.pod.Annotations, Data: tc.pod}
			fit, err := lc.ListAllPossible(t.Context(), event)
			var got []string
			for _, stage := range fit {
				delay, _, errDelay := stage.Delay(t.Context(), event, time.Now())
				becomes := fmt.Sprintf("%s %.0f", stage.Name(), delay.Seconds()/10)
				if stage.Name() == "pod-end" {
					becomes += ending(t, stages[stage.Name()], tc.pod)
				}
				got, err = append(got, becomes), errors.Join(err, errDelay)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" || err != nil {
				t.Error(diff, err)
			}
		})
	}
}

// ending is the status that a stage makes of a pod, which it has at its root.
func ending(t *testing.T, stage *internalversion.Stage, pod *corev1.Pod) string {
	t.Helper()
	var status corev1.PodStatus
	made, err := gotpl.NewRenderer(nil).ToJSON(stage.Spec.Steps[0].Patch.Template, pod)
	if err := errors.Join(err, json.Unmarshal(made, &status)); err != nil || len(status.Conditions) != 2 {
		t.Fatal(status.Conditions, err)
	}
	return fmt.Sprintf(" %s %d", status.Phase, status.ContainerStatuses[0].State.Terminated.ExitCode)
}

// podStages reads the Stages of pods the way kwok does.
func podStages(t *testing.T) map[string]*internalversion.Stage {
	t.Helper()
	pods := map[string]*internalversion.Stage{}
	for doc := range bytes.SplitSeq(KwokConfiguration, []byte("\n---\n")) {
		if !bytes.Contains(doc, []byte("kind: Pod\n")) {
			continue
		}
		stage, err := config.UnmarshalWithType[*internalversion.Stage](doc)
		if err != nil {
			t.Fatalf("%v\n%s", err, doc)
		}
		pods[stage.Name] = stage
	}
	return pods
}
