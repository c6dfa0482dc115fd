// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestEventsAreLimitedApart(t *testing.T) {
	limited := &rest.Config{RateLimiter: flowcontrol.NewTokenBucketRateLimiter(1, 1)}
	events := forEvents(limited)
	expect.That(t, events.RateLimiter != nil && events.RateLimiter != limited.RateLimiter, "Events wait with all other requests, or for nothing")
	expect.Same(t, "Events are limited where nothing is", true, forEvents(&rest.Config{}).RateLimiter == nil)
}
