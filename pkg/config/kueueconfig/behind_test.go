// SPDX-License-Identifier: Apache-2.0

package kueueconfig

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// kueuePod makes a pod that runs Kueue since a time.
func kueuePod(started time.Time, changes ...func(*corev1.Pod)) *corev1.Pod {
	return kit.With(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: where.Namespace, Name: "kueue-controller-manager-0"},
		Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: "config", VolumeSource: corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: where.Name}}}}}},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(started)}}}}},
	}, changes...)
}

func TestBehind(t *testing.T) {
	changed := time.Date(2026, 1, 1, 1, 0, 0, 0, time.UTC)
	before, after := changed.Add(-time.Minute), changed.Add(time.Minute)
	written := func(at time.Time, fields string) metav1.ManagedFieldsEntry {
		entry := metav1.ManagedFieldsEntry{Time: &metav1.Time{Time: at}, FieldsV1: &metav1.FieldsV1{}}
		entry.FieldsV1.SetRawBytes([]byte(fields))
		return entry
	}
	cases := map[string]struct {
		pods []*corev1.Pod
		want bool
	}{
		"Kueue started before":                         {pods: []*corev1.Pod{kueuePod(before)}, want: true},
		"Kueue started since":                          {pods: []*corev1.Pod{kueuePod(after)}},
		"one of two has yet to be replaced":            {pods: []*corev1.Pod{kueuePod(after), kueuePod(before)}, want: true},
		"nobody knows of a pod of Kueue":               {},
		"a pod that has not started reads the new one": {pods: []*corev1.Pod{kueuePod(before, func(pod *corev1.Pod) { pod.Status = corev1.PodStatus{} })}},
		"a pod of another namespace is not Kueue":      {pods: []*corev1.Pod{kueuePod(before, func(pod *corev1.Pod) { pod.Namespace = "team" })}},
		"a pod without the configuration is not Kueue": {pods: []*corev1.Pod{kueuePod(before, func(pod *corev1.Pod) { pod.Spec.Volumes = nil })}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
				Namespace: where.Namespace, Name: where.Name, CreationTimestamp: metav1.NewTime(changed.Add(-time.Hour)),
				// A label that somebody adds later changes nothing for Kueue.
				ManagedFields: []metav1.ManagedFieldsEntry{written(changed, `{"f:data":{"f:file":{}}}`), written(after.Add(time.Hour), `{"f:metadata":{"f:labels":{}}}`)},
			}}
			var pods []corev1.Pod
			for _, pod := range tc.pods {
				pods = append(pods, *pod)
			}
			pod, at := Behind(cm, pods)
			expect.Same(t, "A pod is behind", tc.want, pod != nil)
			expect.That(t, !tc.want || at.Equal(changed), "It changed at %s, want %s", at, changed)
		})
	}
}

// What running jobs are is not changed before Kueue goes by it.
func TestSettingsWaitForKueuesRestart(t *testing.T) {
	s := newSite(t, Overrides{})
	recorder := events.NewFakeRecorder(10)
	s.Recorder = recorder
	started := time.Now().Add(-time.Hour)
	expect.NoError(t, s.client.Create(t.Context(), kueuePod(started)))
	writeAt := func(file string, at time.Time) {
		t.Helper()
		s.write(t, file)
		s.changedAt = at
	}
	told := func() int { return len(recorder.Events) }

	writeAt(head, started.Add(-time.Minute))
	expect.That(t, s.Read(t.Context()) != "" && !s.Settings().ManageJobsWithoutQueueName, "It is not read")

	writeAt(head+"manageJobsWithoutQueueName: true\n", started.Add(time.Minute))
	for range 2 {
		s.Read(t.Context())
	}
	expect.Same(t, "The new setting holds", false, s.Settings().ManageJobsWithoutQueueName)
	expect.Same(t, "People are told once", 1, told())
	expect.That(t, s.awaited != "", "It does not look for the restart")

	pod := kueuePod(started)
	expect.NoError(t, s.client.Delete(t.Context(), pod))
	expect.NoError(t, s.client.Create(t.Context(), kueuePod(started.Add(2*time.Minute))))
	s.Read(t.Context())
	expect.Same(t, "The new setting holds", true, s.Settings().ManageJobsWithoutQueueName)
	expect.Same(t, "People are told no more", 1, told())
	expect.Same(t, "It looks for another restart", "", s.awaited)
}
