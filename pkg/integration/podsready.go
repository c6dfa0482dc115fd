// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobclient"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/podsready"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
)

// podsReady returns the reporter of PodsReady.
func (e *dependencies) podsReady() podsready.Reporter {
	return podsready.Reporter{Client: e.client, Kueue: e.kueue, Expectations: e.expectations, Labels: e.labels}
}

// startReadinessOver resets PodsReady of a Workload that is evicted, before its quota is given
// back: Kueue's scheduler writes the condition as it last saw it when it admits the
// Workload again, and would evict it at once for a recovery that is long over. The quota
// follows with the next view of the Workload. Where Kueue would admit nothing meanwhile, that waits for the last pod.
func startReadinessOver(ctx context.Context, j *job) error {
	if !j.deps.podsReady().Wanted() || j.deps.podsReady().Blocks() && j.active(ctx) {
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

// reportPodsLeft has Kueue not wait for the Workloads of the job that hold quota only for the pods that are left of a run.
func reportPodsLeft(ctx context.Context, j *job) error {
	workloads := j.view.Workloads
	for i := range workloads {
		wl := &workloads[i]
		if !state.HoldsQuota(*wl) || j.alive() && state.StoppedSince(wl).IsZero() && !(j.IsSuspended() && movedOn(j, wl) != "") {
			continue
		}
		if err := j.deps.podsReady().ReportLeft(ctx, j.key, wl); err != nil {
			return fmt.Errorf("reporting that pods are left of Workload %s: %w", client.ObjectKeyFromObject(wl), err)
		}
	}
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
		if j.deps.podsReady().Blocks() && state.HoldsQuota(workloads[i]) && kueuelib.IsEvicted(&workloads[i]) {
			// Stop says what becomes of it.
			continue
		}
		if _, err := j.deps.podsReady().Report(ctx, j.key, &workloads[i], ready()); err != nil {
			return ofError(err)
		}
	}
	return result{}
}
