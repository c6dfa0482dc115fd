// SPDX-License-Identifier: Apache-2.0

package jobclient

import (
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestStoppedBeforeResume(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(100, 0))
	e := NewExpectations(clock)
	_, pending := e.StoppedBeforeResume(jobAt(1))
	expect.That(t, !pending, "A job that was never resumed is expected to be")
	e.ExpectResume(jobAt(1))
	_, pending = e.StoppedBeforeResume(jobAt(1))
	expect.That(t, !pending, "A view from before the resume tells of a stop")
	at, pending := e.StoppedBeforeResume(jobAt(3))
	expect.That(t, pending && at.Equal(clock.Now()), "Stopped at %s, %t; want %s, when the stop was seen", at, pending, clock.Now())
	seen := clock.Now()
	clock.SetTime(seen.Add(time.Minute))
	at, _ = e.StoppedBeforeResume(jobAt(3))
	expect.That(t, at.Equal(seen), "At a second look it stopped at %s, want %s", at, seen)
	e.SawResumed(jobAt(3))
	_, pending = e.StoppedBeforeResume(jobAt(3))
	expect.That(t, !pending, "A resume that was seen is still expected")
	refused := e.ExpectResume(jobAt(4))
	refused()
	_, pending = e.StoppedBeforeResume(jobAt(5))
	expect.That(t, !pending, "A resume that was refused is expected")
}
