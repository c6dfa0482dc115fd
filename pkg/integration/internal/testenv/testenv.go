// SPDX-License-Identifier: Apache-2.0

// Package testenv has what the tests of those packages share that act on what the manager serves.
package testenv

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"
	configapi "sigs.k8s.io/kueue/apis/config/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/config/kueueconfig"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobclient"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/peers"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/podsets"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// InTree is the answer whether Kueue's in-tree integration is active.
func InTree(tb testing.TB, active bool) *peers.InTree {
	tb.Helper()
	in := peers.NewInTree(nil, "", nil, peers.NewTrainJobs(nil))
	expect.NoError(tb, in.Observe(tb.Context(), time.Now(), active, nil))
	return in
}

// Served returns a Trainer of a version.
func Served(tb testing.TB, version trainjob.TrainerVersion) *peers.Trainer {
	tb.Helper()
	trainer := peers.NewTrainer(peers.NewTrainJobs(nil))
	trainer.Set(tb.Context(), version, nil)
	return trainer
}

// KueueDefaults are the settings of a Kueue that is told nothing.
func KueueDefaults(tb testing.TB) *kueueconfig.Follower {
	tb.Helper()
	settings := expect.Must(kueueconfig.Of(kueueconfig.Defaults(configapi.DefaultNamespace), kueueconfig.Overrides{}))(tb)
	return kueueconfig.Fixed(*settings)
}

// Kueue are the settings of one that manages all namespaces.
func Kueue(changes ...func(*kueueconfig.Settings)) *kueueconfig.Follower {
	settings := kueueconfig.Settings{ManagedJobsNamespaceSelector: &metav1.LabelSelector{}}
	for _, change := range changes {
		change(&settings)
	}
	return kueueconfig.Fixed(settings)
}

// WaitsForPods are the settings of a Kueue that waits for pods.
func WaitsForPods(settings *kueueconfig.Settings) {
	settings.WaitForPodsReady = &configapi.WaitForPodsReady{}
}

// BlocksAdmission are the settings of a Kueue that admits nothing while pods are not ready.
func BlocksAdmission(settings *kueueconfig.Settings) {
	settings.WaitForPodsReady = &configapi.WaitForPodsReady{BlockAdmission: new(true)}
}

// Describer describes TrainJobs of those runtimes that c has.
func Describer(tb testing.TB, c client.Client) *podsets.Describer {
	tb.Helper()
	renderer := expect.Must(trainjob.NewRenderer(tb.Context(), c.Scheme()))(tb)
	return &podsets.Describer{
		Runtimes: trainjob.NewRuntimes(c, c), Renderer: renderer, Cached: c, Field: patch.Of(trainjob.Trainer23),
		Defaults: podsets.FixedDefaults(&podset.Defaults{}), Remembered: lru.New(podsets.Remembers),
		Recorder: jobevents.New(&events.FakeRecorder{}),
	}
}

// LedSince returns the expectations of a process that has led since a time.
func LedSince(began time.Time) *jobclient.Expectations {
	e, _ := LedSinceByClock(began)
	return e
}

// LedSinceByClock returns their clock, too, which tells the time of now.
func LedSinceByClock(began time.Time) (*jobclient.Expectations, *clocktesting.FakePassiveClock) {
	clock := clocktesting.NewFakePassiveClock(began)
	e := jobclient.NewExpectations(clock)
	clock.SetTime(time.Now())
	return e, clock
}
