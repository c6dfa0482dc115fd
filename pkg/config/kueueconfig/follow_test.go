// SPDX-License-Identifier: Apache-2.0

package kueueconfig

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

var where = ConfigMap{Namespace: "kueue-system", Name: "kueue-manager-config", Key: "controller_manager_config.yaml"}

// site is a cluster with Kueue's ConfigMap, which a test may change, and a Follower of it.
type site struct {
	*Follower
	client    client.WithWatch
	forbidden bool
	// away is how many requests are not answered.
	away    int
	changes int
	// changedAt is when the ConfigMap was made.
	changedAt time.Time
}

func newSite(t *testing.T, overrides Overrides) *site {
	t.Helper()
	s := &site{}
	s.client = interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if s.forbidden {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, key.Name, errors.New("no"))
			}
			if s.away--; s.away >= 0 {
				return apierrors.NewTimeoutError("later", 1)
			}
			err := c.Get(ctx, key, obj, opts...)
			obj.SetCreationTimestamp(metav1.NewTime(s.changedAt))
			return err
		},
	})
	s.Follower = NewFollower(s.client, where, overrides)
	s.OnChange(func(context.Context) error { s.changes++; return nil })
	return s
}

// write makes file Kueue's configuration, or takes the ConfigMap away.
func (s *site) write(t *testing.T, file string) {
	t.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: where.Namespace, Name: where.Name}, Data: map[string]string{where.Key: file}}
	err := client.IgnoreNotFound(s.client.Delete(t.Context(), cm.DeepCopy()))
	if file != "" {
		err = errors.Join(err, s.client.Create(t.Context(), cm))
	}
	expect.NoError(t, err)
}

func TestRead(t *testing.T) {
	const manages, broken = head + "manageJobsWithoutQueueName: true\n", head + "integrations: ["
	type state struct{ Waits, Manages, Read bool }
	type row struct {
		overrides Overrides
		// files are read one after the other; an empty one is a ConfigMap that is not there.
		files       []string
		forbidden   bool
		want        state
		wantChanges int
	}
	expect.Rows(t, map[string]row{
		"Kueue's settings hold":                        {files: []string{manages}, want: state{Waits: true, Manages: true, Read: true}, wantChanges: 1},
		"the same once more is no change":              {files: []string{manages, manages}, want: state{Waits: true, Manages: true, Read: true}, wantChanges: 1},
		"a change is followed":                         {files: []string{head, manages, headOfV1}, want: state{Read: true}, wantChanges: 2},
		"without a ConfigMap its defaults hold":        {files: []string{""}, want: state{Waits: true}},
		"where it may not be read its defaults hold":   {files: []string{manages}, forbidden: true, want: state{Waits: true}},
		"where it cannot be decoded its defaults do":   {files: []string{broken}, want: state{Waits: true}},
		"what was read holds when it breaks":           {files: []string{manages, broken}, want: state{Waits: true, Manages: true}, wantChanges: 1},
		"what was read holds when it goes":             {files: []string{manages, ""}, want: state{Waits: true, Manages: true}, wantChanges: 1},
		"it is read when it is there":                  {files: []string{"", manages}, want: state{Waits: true, Manages: true, Read: true}, wantChanges: 1},
		"an override counts":                           {overrides: Overrides{ManageJobsWithoutQueueName: ptr.To(false)}, files: []string{manages}, want: state{Waits: true, Read: true}},
		"an override counts where nothing can be read": {overrides: Overrides{ManageJobsWithoutQueueName: ptr.To(true)}, files: []string{""}, want: state{Waits: true, Manages: true}},
	}, func(t *testing.T, tc row) {
		s := newSite(t, tc.overrides)
		s.forbidden = tc.forbidden
		read := false
		for _, file := range tc.files {
			s.write(t, file)
			s.Read(t.Context())
			read = s.problem == ""
		}
		got := state{Waits: s.Settings().WaitForPodsReady != nil, Manages: s.Settings().ManageJobsWithoutQueueName, Read: read}
		expect.Same(t, "Unexpected state", tc.want, got)
		expect.Same(t, "Unexpected number of changes", tc.wantChanges, s.changes)
	})
}

// Whoever changed Kueue's configuration asks for it.
func TestVersionIsOfWhatHolds(t *testing.T) {
	s := newSite(t, Overrides{})
	s.write(t, head)
	var got []string
	for _, file := range []string{head, head + "integrations: [", head + "manageJobsWithoutQueueName: true\n", head + "featureGates: {FromTheFuture: true}\n"} {
		var cm corev1.ConfigMap
		expect.NoError(t, s.client.Get(t.Context(), client.ObjectKey{Namespace: where.Namespace, Name: where.Name}, &cm))
		cm.Data[where.Key] = file
		expect.NoError(t, s.client.Update(t.Context(), &cm))
		s.Read(t.Context())
		got = append(got, s.Version())
	}
	expect.Same(t, "Unexpected versions", []string{"2", "2", "4", "5"}, got)
}

// Jobs would run by defaults that are not Kueue's settings.
func TestReadFirst(t *testing.T) {
	type row struct {
		forbidden, known bool
		file             string
		away             int
	}
	expect.Rows(t, map[string]row{
		"it waits for an answer":             {away: 3, file: head, known: true},
		"that there is no ConfigMap is one":  {away: 3},
		"that it may not be read is one":     {forbidden: true, file: head},
		"so is one that nobody can decode":   {file: head + "integrations: ["},
		"and one at once needs no other one": {file: head, known: true},
	}, func(t *testing.T, tc row) {
		synctest.Test(t, func(t *testing.T) {
			s := newSite(t, Overrides{})
			s.write(t, tc.file)
			s.forbidden, s.away = tc.forbidden, tc.away
			began := time.Now()
			s.ReadFirst(t.Context())
			expect.Same(t, "Kueue's settings are known", tc.known, s.Known())
			expect.Same(t, "Waited", time.Duration(tc.away)*time.Second, time.Since(began))
		})
	})
}

func TestItFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, Overrides{})
		s.write(t, head)
		go func() { _ = s.Start(t.Context()) }()
		synctest.Wait()
		s.write(t, head+"manageJobsWithoutQueueName: true\n")
		expect.Pass(readEvery)
		expect.That(t, s.Settings().ManageJobsWithoutQueueName, "A change is not followed")
	})
}

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
