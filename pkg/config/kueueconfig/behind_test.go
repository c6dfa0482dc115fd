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
	return kit.With(kit.KueuePod(where.Namespace, where.Name, started), changes...)
}

func TestBehind(t *testing.T) {
	changed := time.Date(2026, 1, 1, 1, 0, 0, 0, time.UTC)
	before, after := changed.Add(-time.Minute), changed.Add(time.Minute)
	written := func(at time.Time, fields string) metav1.ManagedFieldsEntry {
		entry := metav1.ManagedFieldsEntry{Time: &metav1.Time{Time: at}, FieldsV1: &metav1.FieldsV1{}}
		entry.FieldsV1.SetRawBytes([]byte(fields))
		return entry
	}
	// since is Kueue's pod, which has run since then.
	since := func(at time.Time, changes ...func(*corev1.Pod)) corev1.Pod { return *kueuePod(at, changes...) }
	type pods = []corev1.Pod
	expect.Rows(t, map[string]expect.Row[pods, bool]{
		"Kueue started before":                         {In: pods{since(before)}, Want: true},
		"Kueue started since":                          {In: pods{since(after)}},
		"one of two has yet to be replaced":            {In: pods{since(after), since(before)}, Want: true},
		"nobody knows of a pod of Kueue":               {},
		"a pod that has not started reads the new one": {In: pods{since(before, func(pod *corev1.Pod) { pod.Status = corev1.PodStatus{} })}},
		"a container that started again reads it again": {In: pods{since(before, func(pod *corev1.Pod) {
			pod.Status.ContainerStatuses[0].State.Running.StartedAt = metav1.NewTime(after)
			pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
				Name: "proxy", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(before)}}})
		})}},
		"a pod that was made since has it, whatever the clock of its node says": {In: pods{since(before, func(pod *corev1.Pod) { pod.CreationTimestamp = metav1.NewTime(after) })}},
		"a pod of a lost node runs no more":                                     {In: pods{since(before, func(pod *corev1.Pod) { pod.DeletionTimestamp = &metav1.Time{Time: after} })}},
		"a pod that is on its way out still runs":                               {In: pods{since(before, func(pod *corev1.Pod) { pod.DeletionTimestamp = &metav1.Time{Time: after.Add(time.Hour)} })}, Want: true},
		"a pod of another namespace is not Kueue":                               {In: pods{since(before, func(pod *corev1.Pod) { pod.Namespace = "team" })}},
		"a pod without the configuration is not Kueue":                          {In: pods{since(before, func(pod *corev1.Pod) { pod.Spec.Volumes = nil })}},
	}, func(t *testing.T, tc expect.Row[pods, bool]) {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: where.Namespace, Name: where.Name, CreationTimestamp: metav1.NewTime(changed.Add(-time.Hour)),
			// A label that somebody adds later changes nothing for Kueue.
			ManagedFields: []metav1.ManagedFieldsEntry{written(changed, `{"f:data":{"f:file":{}}}`), written(after.Add(time.Hour), `{"f:metadata":{"f:labels":{}}}`)},
		}}
		pod, at := Behind(cm, tc.In, after.Add(time.Minute))
		expect.Same(t, "A pod is behind", tc.Want, pod != nil)
		expect.That(t, !tc.Want || at.Equal(changed), "It changed at %s, want %s", at, changed)
	})
}

// runningKueue is a site where Kueue has run for an hour, and who is told of it.
func runningKueue(t *testing.T) (s *site, recorder *events.FakeRecorder, started time.Time) {
	t.Helper()
	s, recorder, started = newSite(t, Overrides{}), events.NewFakeRecorder(10), time.Now().Add(-time.Hour)
	s.Recorder = recorder
	expect.NoError(t, s.client.Create(t.Context(), kueuePod(started)))
	return s, recorder, started
}

// reads has file be Kueue's configuration since a time, and be read.
func (s *site) reads(t *testing.T, file string, since time.Time) {
	t.Helper()
	s.write(t, file)
	s.toldAwaited = "" // The fake API server counts versions from 1 again.
	s.changedAt = since
	s.Read(t.Context())
}

// What running jobs are is not changed before Kueue goes by it.
func TestSettingsWaitForKueuesRestart(t *testing.T) {
	s, recorder, started := runningKueue(t)
	s.reads(t, head, started.Add(-time.Minute))
	expect.That(t, s.Known() && !s.Settings().ManageJobsWithoutQueueName, "It is not read")

	// Kueue may not even start with what is not known here.
	s.reads(t, head+"manageJobsWithoutQueueName: true\nfeatureGates: {FromTheFuture: true}\n", started.Add(time.Minute))
	s.Read(t.Context())
	expect.Same(t, "The new setting holds", false, s.Settings().ManageJobsWithoutQueueName)
	expect.Same(t, "People are told once", 1, len(recorder.Events))

	expect.NoError(t, s.client.Delete(t.Context(), kueuePod(started)))
	expect.NoError(t, s.client.Create(t.Context(), kueuePod(started.Add(2*time.Minute))))
	s.Read(t.Context())
	expect.Same(t, "The new setting holds", true, s.Settings().ManageJobsWithoutQueueName)
	expect.Same(t, "People are told no more", 1, len(recorder.Events))
}

// Kueue evicts what nobody has said is ready at its first look after the restart.
func TestReadinessIsReportedBeforeKueueWaitsForIt(t *testing.T) {
	const off = "featureGates: {DisableWaitForPodsReady: true}\n"
	s, _, started := runningKueue(t)
	s.reads(t, head+off, started.Add(-time.Minute))
	expect.Same(t, "It is waited for at first", false, s.WaitsForPodsReady())
	told := s.changes
	s.reads(t, head, started.Add(time.Minute))
	expect.That(t, s.WaitsForPodsReady() && s.Settings().WaitForPodsReady == nil, "It is not reported before the restart")
	expect.Same(t, "Looks at all jobs", told+1, s.changes)
	s.reads(t, head+off, started.Add(2*time.Minute))
	expect.Same(t, "It is waited for after the edit was undone", false, s.WaitsForPodsReady())
}

// A manager that starts between an edit and Kueue's restart has no other settings to hold, whatever becomes of the edit.
func TestSettingsAheadOfKueuesRestart(t *testing.T) {
	s, recorder, started := runningKueue(t)
	for _, file := range []string{head + "manageJobsWithoutQueueName: true\n", head} {
		s.reads(t, file, started.Add(time.Minute))
		expect.Same(t, "What is there holds", file != head, s.Settings().ManageJobsWithoutQueueName)
		expect.That(t, strings.Contains(<-recorder.Events, "goes by the new one"), "People are told otherwise")
	}
}
