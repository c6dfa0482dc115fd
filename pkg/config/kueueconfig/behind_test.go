// SPDX-License-Identifier: Apache-2.0

package kueueconfig

import (
	"strings"
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
		ObjectMeta: metav1.ObjectMeta{Namespace: where.Namespace, Name: "kueue-controller-manager-0", CreationTimestamp: metav1.NewTime(started)},
		Spec: corev1.PodSpec{Containers: []corev1.Container{
			{Name: "manager", VolumeMounts: []corev1.VolumeMount{{Name: "config"}}}, {Name: "proxy"},
		}, Volumes: []corev1.Volume{{Name: "config", VolumeSource: corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: where.Name}}}}}},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
			Name: "manager", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(started)}}}}},
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
	for name, tc := range map[string]struct {
		pods []*corev1.Pod
		want bool
	}{
		"Kueue started before":                         {pods: []*corev1.Pod{kueuePod(before)}, want: true},
		"Kueue started since":                          {pods: []*corev1.Pod{kueuePod(after)}},
		"one of two has yet to be replaced":            {pods: []*corev1.Pod{kueuePod(after), kueuePod(before)}, want: true},
		"nobody knows of a pod of Kueue":               {},
		"a pod that has not started reads the new one": {pods: []*corev1.Pod{kueuePod(before, func(pod *corev1.Pod) { pod.Status = corev1.PodStatus{} })}},
		"a container that started again reads it again": {pods: []*corev1.Pod{kueuePod(before, func(pod *corev1.Pod) {
			pod.Status.ContainerStatuses[0].State.Running.StartedAt = metav1.NewTime(after)
			pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
				Name: "proxy", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(before)}}})
		})}},
		"a pod that was made since has it, whatever the clock of its node says": {pods: []*corev1.Pod{kueuePod(before, func(pod *corev1.Pod) {
			pod.CreationTimestamp = metav1.NewTime(after)
		})}},
		"a pod of a lost node runs no more": {pods: []*corev1.Pod{kueuePod(before, func(pod *corev1.Pod) { pod.DeletionTimestamp = &metav1.Time{Time: after} })}},
		"a pod that is on its way out still runs": {pods: []*corev1.Pod{kueuePod(before, func(pod *corev1.Pod) {
			pod.DeletionTimestamp = &metav1.Time{Time: after.Add(time.Hour)}
		})}, want: true},
		"a pod of another namespace is not Kueue":      {pods: []*corev1.Pod{kueuePod(before, func(pod *corev1.Pod) { pod.Namespace = "team" })}},
		"a pod without the configuration is not Kueue": {pods: []*corev1.Pod{kueuePod(before, func(pod *corev1.Pod) { pod.Spec.Volumes = nil })}},
	} {
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
			pod, at := Behind(cm, pods, after.Add(time.Minute))
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
		s.toldAwaited = "" // The fake API server counts versions from 1 again.
		s.changedAt = at
	}
	told := func() int { return len(recorder.Events) }

	writeAt(head, started.Add(-time.Minute))
	s.Read(t.Context())
	expect.That(t, s.Known() && !s.Settings().ManageJobsWithoutQueueName, "It is not read")

	writeAt(head+"manageJobsWithoutQueueName: true\n", started.Add(time.Minute))
	for range 2 {
		s.Read(t.Context())
	}
	expect.Same(t, "The new setting holds", false, s.Settings().ManageJobsWithoutQueueName)
	expect.Same(t, "People are told once", 1, told())

	pod := kueuePod(started)
	expect.NoError(t, s.client.Delete(t.Context(), pod))
	expect.NoError(t, s.client.Create(t.Context(), kueuePod(started.Add(2*time.Minute))))
	s.Read(t.Context())
	expect.Same(t, "The new setting holds", true, s.Settings().ManageJobsWithoutQueueName)
	expect.Same(t, "People are told no more", 1, told())
}

// Kueue evicts what nobody has said is ready at its first look after the restart.
func TestReadinessIsReportedBeforeKueueWaitsForIt(t *testing.T) {
	const off = "featureGates: {DisableWaitForPodsReady: true}\n"
	s := newSite(t, Overrides{})
	started := time.Now().Add(-time.Hour)
	expect.NoError(t, s.client.Create(t.Context(), kueuePod(started)))
	read := func(file string, at time.Time) {
		t.Helper()
		s.write(t, file)
		s.changedAt = at
		s.Read(t.Context())
	}
	read(head+off, started.Add(-time.Minute))
	expect.Same(t, "It is waited for at first", false, s.WaitsForPodsReady())
	told := s.changes
	read(head, started.Add(time.Minute))
	expect.That(t, s.WaitsForPodsReady() && s.Settings().WaitForPodsReady == nil, "It is not reported before the restart")
	expect.Same(t, "Looks at all jobs", told+1, s.changes)
	read(head+off, started.Add(2*time.Minute))
	expect.Same(t, "It is waited for after the edit was undone", false, s.WaitsForPodsReady())
}

// A manager that starts between an edit and Kueue's restart has no other settings to hold, whatever becomes of the edit.
func TestSettingsAheadOfKueuesRestart(t *testing.T) {
	s := newSite(t, Overrides{})
	recorder := events.NewFakeRecorder(10)
	s.Recorder = recorder
	started := time.Now().Add(-time.Hour)
	expect.NoError(t, s.client.Create(t.Context(), kueuePod(started)))
	for _, manages := range []bool{true, false} {
		file := head
		if manages {
			file += "manageJobsWithoutQueueName: true\n"
		}
		s.write(t, file)
		s.toldAwaited = "" // The fake API server counts versions from 1 again.
		s.changedAt = started.Add(time.Minute)
		s.Read(t.Context())
		expect.Same(t, "What is there holds", manages, s.Settings().ManageJobsWithoutQueueName)
		expect.That(t, strings.Contains(<-recorder.Events, "goes by the new one"), "People are told otherwise")
	}
}
