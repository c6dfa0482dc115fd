// SPDX-License-Identifier: Apache-2.0

package jobclient

import (
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

func TestStoppedBeforeResume(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(100, 0))
	e := NewExpectations(clock)
	if _, pending := e.StoppedBeforeResume(jobAt(1)); pending {
		t.Error("A job that was never resumed is expected to be")
	}
	e.ExpectResume(jobAt(1))
	if _, pending := e.StoppedBeforeResume(jobAt(1)); pending {
		t.Error("A view from before the resume tells of a stop")
	}
	if at, pending := e.StoppedBeforeResume(jobAt(3)); !pending || !at.Equal(clock.Now()) {
		t.Errorf("Stopped at %s, %t; want %s, when the stop was seen", at, pending, clock.Now())
	}
	seen := clock.Now()
	clock.SetTime(seen.Add(time.Minute))
	if at, _ := e.StoppedBeforeResume(jobAt(3)); !at.Equal(seen) {
		t.Errorf("At a second look it stopped at %s, want %s", at, seen)
	}
	e.SawResumed(jobAt(3))
	if _, pending := e.StoppedBeforeResume(jobAt(3)); pending {
		t.Error("A resume that was seen is still expected")
	}
	refused := e.ExpectResume(jobAt(4))
	refused()
	if _, pending := e.StoppedBeforeResume(jobAt(5)); pending {
		t.Error("A resume that was refused is expected")
	}
}
