// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobclient"
)

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
