// SPDX-License-Identifier: Apache-2.0

package stages

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/kwok/pkg/apis/internalversion"
	"sigs.k8s.io/kwok/pkg/config"
	"sigs.k8s.io/kwok/pkg/utils/gotpl"
	"sigs.k8s.io/kwok/pkg/utils/lifecycle"
)

const (
	finish         = "localcluster/finish"
	runFor         = "localcluster/run-for"
	terminateAfter = "localcluster/terminate-after"
)

func TestPodStages(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	cases := map[string]struct {
		phase       corev1.PodPhase
		annotations map[string]string
		deleted     bool
		noGrace     bool
		wantStage   string
		wantDelay   time.Duration
		// wantEnd is the phase that the pod ends in, and the exit code.
		wantEnd string
	}{
		"a bound pod gets ready at once": {
			phase: corev1.PodPending, wantStage: "pod-ready"},
		"a pod that is to fail runs first": {
			phase: corev1.PodPending, annotations: map[string]string{finish: "failed"}, wantStage: "pod-ready"},
		"a running pod is left alone": {
			phase: corev1.PodRunning},
		"finish: succeeded ends it": {
			phase: corev1.PodRunning, annotations: map[string]string{finish: "succeeded"}, wantStage: "pod-end", wantEnd: "Succeeded 0"},
		"finish: failed ends it": {
			phase: corev1.PodRunning, annotations: map[string]string{finish: "failed"}, wantStage: "pod-end", wantEnd: "Failed 1"},
		"finish wins over run-for": {
			phase: corev1.PodRunning, annotations: map[string]string{finish: "failed", runFor: "10s"}, wantStage: "pod-end", wantEnd: "Failed 1"},
		"an unknown finish is ignored": {
			phase: corev1.PodRunning, annotations: map[string]string{finish: "maybe"}},
		"run-for counts from the start of the pod": {
			phase: corev1.PodRunning, annotations: map[string]string{runFor: "1m10s"}, wantStage: "pod-end", wantDelay: 10 * time.Second, wantEnd: "Succeeded 0"},
		"a run-for that is no duration is ignored": {
			phase: corev1.PodRunning, annotations: map[string]string{runFor: "10"}},
		"a succeeded pod is left alone": {
			phase: corev1.PodSucceeded, annotations: map[string]string{runFor: "10s"}},
		"a deleted pod terminates at once": {
			phase: corev1.PodRunning, deleted: true, wantStage: "pod-end", wantEnd: "Failed 143"},
		"a deleted pod forgets that it was to succeed": {
			phase: corev1.PodRunning, deleted: true, annotations: map[string]string{finish: "succeeded"}, wantStage: "pod-end", wantEnd: "Failed 143"},
		"terminate-after counts from the request": {
			phase: corev1.PodRunning, deleted: true, annotations: map[string]string{terminateAfter: "15s"}, wantStage: "pod-end", wantDelay: 5 * time.Second, wantEnd: "Failed 143"},
		"the grace period ends terminate-after": {
			phase: corev1.PodRunning, deleted: true, annotations: map[string]string{terminateAfter: "1h"}, wantStage: "pod-end", wantDelay: 20 * time.Second, wantEnd: "Failed 143"},
		"a deleted pod that has ended just goes": {
			phase: corev1.PodSucceeded, deleted: true, wantStage: "pod-delete"},
		"a deleted pod that never ran just goes": {
			phase: corev1.PodPending, deleted: true, wantStage: "pod-delete"},
		"a pod that only waits for its finalizers is left alone": {
			phase: corev1.PodFailed, deleted: true, noGrace: true},
	}
	stages := podStages(t)
	lc, err := lifecycle.NewLifecycle(slices.Collect(maps.Values(stages)))
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Annotations: tc.annotations}}
			pod.Spec.Containers = []corev1.Container{{Name: "c"}}
			pod.Status.Phase = tc.phase
			// Started a minute ago, and deleted ten seconds ago with 30 s of grace.
			pod.Status.StartTime = ptr.To(metav1.NewTime(now.Add(-time.Minute)))
			if tc.deleted {
				pod.DeletionTimestamp = ptr.To(metav1.NewTime(now.Add(20 * time.Second)))
				pod.DeletionGracePeriodSeconds = ptr.To[int64](30)
			}
			if tc.noGrace {
				pod.DeletionGracePeriodSeconds = ptr.To[int64](0)
			}
			event := &lifecycle.Event{Labels: pod.Labels, Annotations: pod.Annotations, Data: pod}
			fit, err := lc.ListAllPossible(context.Background(), event)
			if err != nil {
				t.Fatal(err)
			}
			checkStage(t, fit, event, tc.wantStage, tc.wantDelay)
			if tc.wantEnd != "" {
				checkEnd(t, stages[tc.wantStage], pod, tc.wantEnd)
			}
		})
	}
}

func checkStage(t *testing.T, stages []*lifecycle.Stage, event *lifecycle.Event, want string, wantDelay time.Duration) {
	t.Helper()
	if want == "" {
		if len(stages) != 0 {
			t.Fatalf("stage %s fits, want none", stages[0].Name())
		}
		return
	}
	if len(stages) != 1 || stages[0].Name() != want {
		t.Fatalf("%d stages fit, want only %s", len(stages), want)
	}
	delay, _, err := stages[0].Delay(context.Background(), event, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if diff := (delay - wantDelay).Abs(); diff > 2*time.Second {
		t.Errorf("delay %s, want about %s", delay, wantDelay)
	}
}

// checkEnd looks at the status that a stage makes of a pod.
func checkEnd(t *testing.T, stage *internalversion.Stage, pod *corev1.Pod, want string) {
	t.Helper()
	// It has the status at its root.
	var status corev1.PodStatus
	made, err := gotpl.NewRenderer(nil).ToJSON(stage.Spec.Steps[0].Patch.Template, pod)
	if err := errors.Join(err, json.Unmarshal(made, &status)); err != nil {
		t.Fatal(err)
	}
	terminated := status.ContainerStatuses[0].State.Terminated
	if got := fmt.Sprint(status.Phase, " ", terminated.ExitCode); got != want || len(status.Conditions) != 2 {
		t.Errorf("it ends as %s with conditions %v, want %s", got, status.Conditions, want)
	}
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
