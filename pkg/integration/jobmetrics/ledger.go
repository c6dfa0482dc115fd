// SPDX-License-Identifier: Apache-2.0

package jobmetrics

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/ledger"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// FactsOf finds in the caches what the ledger does not read off a Workload. What cannot be read is left out: the next look has it.
func FactsOf(ctx context.Context, cached client.Reader, wl *kueue.Workload, userLabel string, waitsForPods bool) ledger.Facts {
	var job *trainjob.TrainJob
	if owner := state.ControllerOfKind(wl, trainjob.GVK); owner != nil {
		found := &trainjob.TrainJob{}
		if cached.Get(ctx, client.ObjectKey{Namespace: wl.Namespace, Name: owner.Name}, found) == nil && found.UID == owner.UID {
			job = found
		}
	}
	facts := ledger.FactsOf(job, userLabel)
	facts.WaitsForPods = waitsForPods
	if job != nil && !facts.WaitsForPods {
		view, _ := state.Observe(ctx, cached, client.ObjectKeyFromObject(job))
		facts.Started = ledger.StartOf(job, wl, view.ChildJobsOf(job))
	}
	return facts
}
