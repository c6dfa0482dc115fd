// SPDX-License-Identifier: Apache-2.0

package stages

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/kwok/pkg/apis/internalversion"
	"sigs.k8s.io/kwok/pkg/config"
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
	}{
		"a bound pod gets ready at once": {
			phase: corev1.PodPending, wantStage: "pod-ready"},
		"a pod that is to fail runs first": {
			phase: corev1.PodPending, annotations: map[string]string{finish: "failed"}, wantStage: "pod-ready"},
		"a running pod is left alone": {
			phase: corev1.PodRunning},
		"finish: succeeded ends it": {
			phase: corev1.PodRunning, annotations: map[string]string{finish: "succeeded"}, wantStage: "pod-succeeded"},
		"finish: failed ends it": {
			phase: corev1.PodRunning, annotations: map[string]string{finish: "failed"}, wantStage: "pod-failed"},
		"finish wins over run-for": {
			phase: corev1.PodRunning, annotations: map[string]string{finish: "failed", runFor: "10s"}, wantStage: "pod-failed"},
		"an unknown finish is ignored": {
			phase: corev1.PodRunning, annotations: map[string]string{finish: "maybe"}},
		"run-for counts from the start of the pod": {
			phase: corev1.PodRunning, annotations: map[string]string{runFor: "1m10s"}, wantStage: "pod-run-for", wantDelay: 10 * time.Second},
		"a run-for that is no duration is ignored": {
			phase: corev1.PodRunning, annotations: map[string]string{runFor: "10"}},
		"a succeeded pod is left alone": {
			phase: corev1.PodSucceeded, annotations: map[string]string{runFor: "10s"}},
		"a deleted pod terminates at once": {
			phase: corev1.PodRunning, deleted: true, wantStage: "pod-terminate"},
		"a deleted pod forgets that it was to succeed": {
			phase: corev1.PodRunning, deleted: true, annotations: map[string]string{finish: "succeeded"}, wantStage: "pod-terminate"},
		"terminate-after counts from the request": {
			phase: corev1.PodRunning, deleted: true, annotations: map[string]string{terminateAfter: "15s"}, wantStage: "pod-terminate-after", wantDelay: 5 * time.Second},
		"the grace period ends terminate-after": {
			phase: corev1.PodRunning, deleted: true, annotations: map[string]string{terminateAfter: "1h"}, wantStage: "pod-terminate-after", wantDelay: 20 * time.Second},
		"a deleted pod that has ended just goes": {
			phase: corev1.PodSucceeded, deleted: true, wantStage: "pod-delete"},
		"a deleted pod that never ran just goes": {
			phase: corev1.PodPending, deleted: true, wantStage: "pod-delete"},
		"a pod that only waits for its finalizers is left alone": {
			phase: corev1.PodFailed, deleted: true, noGrace: true},
	}
	lc := podLifecycle(t)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Annotations: tc.annotations}}
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
			stages, err := lc.ListAllPossible(context.Background(), event)
			if err != nil {
				t.Fatal(err)
			}
			checkStage(t, stages, event, tc.wantStage, tc.wantDelay)
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

// podLifecycle reads the embedded Stages the way kwok does.
func podLifecycle(t *testing.T) lifecycle.Lifecycle {
	t.Helper()
	all, err := YAML()
	if err != nil {
		t.Fatal(err)
	}
	var pods []*internalversion.Stage
	docs := utilyaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(all)))
	buf := make([]byte, 1<<20)
	for {
		n, err := docs.Read(buf)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		stage, err := config.UnmarshalWithType[*internalversion.Stage](buf[:n])
		if err != nil {
			t.Fatalf("%v\n%s", err, buf[:n])
		}
		if stage.Spec.ResourceRef.Kind == "Pod" {
			pods = append(pods, stage)
		}
	}
	lc, err := lifecycle.NewLifecycle(pods)
	if err != nil {
		t.Fatal(err)
	}
	return lc
}
