// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"k8s.io/client-go/rest"

	managerconfig "github.com/kueue-trainer/kueue-trainer/pkg/config"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// What thousands of jobs are told at once would have the leader lose it, and the next one, which tells all of it again.
func TestTheLeaseWaitsBehindNoOtherRequest(t *testing.T) {
	cfg := &managerconfig.Configuration{}
	managerconfig.Default(cfg)
	config := &rest.Config{}
	limit(config, cfg)
	expect.That(t, config.RateLimiter != nil, "Requests are not limited")
	options := expect.Must(managerOptions(cfg, config, nil, nil))(t)
	lease := options.LeaderElectionConfig
	expect.That(t, lease.RateLimiter == nil && lease.QPS < 0, "The lease waits for %v, %v requests a second", lease.RateLimiter, lease.QPS)
}
