// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"sync"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobclient"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/podsready"
)

// podsReady returns the reporter of PodsReady.
func (e *dependencies) podsReady() podsready.Reporter {
	return podsready.Reporter{Client: e.client, Kueue: e.kueue, Expectations: e.expectations, Labels: e.labels}
}

// startReadinessOver resets PodsReady of a Workload that is evicted, before its quota is given
// back: Kueue's scheduler writes the condition as it last saw it when it admits the
// Workload again, and would evict it at once for a recovery that is long over. The quota
// follows with the next view of the Workload.
func startReadinessOver(ctx context.Context, j *job) error {
	if !j.deps.podsReady().Wanted() {
		return nil
	}
	wl := j.holdingQuota()
	if wl == nil {
		return nil
	}
	reported, err := j.deps.podsReady().Report(ctx, j.key, wl, false)
	if err != nil || !reported {
		return err
	}
	j.stopping = true
	return nil
}

// reportPodsReady brings PodsReady of a TrainJob's Workload in step, where Kueue waits for it, and
// the metrics in any case.
func reportPodsReady(ctx context.Context, j *job) result {
	// A job that is suspended, or was a moment ago, may have the counts of its last pods.
	ready := sync.OnceValue(func() bool {
		return j.decision.started == "" && (!j.IsSuspended() || j.ManagedExternally()) && j.PodsReady(ctx, j.deps.client)
	})
	measureReady(j, ready)
	if !j.deps.podsReady().Wanted() {
		return result{}
	}
	workloads := j.workloads()
	if len(workloads) == 0 || j.deps.expectations.Outdated(j.key, jobclient.VersionsOf(workloads)) {
		return result{}
	}
	for i := range workloads {
		if _, err := j.deps.podsReady().Report(ctx, j.key, &workloads[i], ready()); err != nil {
			return ofError(err)
		}
	}
	return result{}
}
