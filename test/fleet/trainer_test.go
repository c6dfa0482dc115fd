// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
)

// FLEET_WORKERS=external:2.2,external:2.1 has the workers run older releases than the manager cluster.
var _ = Describe("Whatever release of Trainer a worker has, a TrainJob", func() {
	runsAndEnds := func(ctx context.Context, w *sites, worker *site) {
		// Each release ships its own.
		var same trainer.TrainingRuntimeSpec
		runtime := w.manager.MakeRuntime(ctx, "torch-distributed", func(spec *trainer.TrainingRuntimeSpec) { same = *spec.DeepCopy() })
		worker.MakeRuntime(ctx, "torch-distributed", func(spec *trainer.TrainingRuntimeSpec) { *spec = same })
		w.manager.Make(ctx, w.manager.job("llm").Runtime(runtime).Obj())
		pod := w.eventuallyRunsOn(ctx, worker, "llm")
		expectPlaced(&pod)
		w.expectNothingHere(ctx, "llm")
		worker.Finish(ctx, "llm", "succeeded")
		w.eventuallyOver(ctx, "llm", trainer.TrainJobComplete)
		worker.EventuallyEmpty(ctx)
	}

	It("of the same runtime runs in the first one, with its placement", func(ctx context.Context) {
		w := newWorld(ctx, "8", "0")
		runsAndEnds(ctx, w, w.worker1)
	}, SpecTimeout(specTimeout))

	It("of the same runtime runs in the second one, with its placement", func(ctx context.Context) {
		w := newWorld(ctx, "0", "8")
		runsAndEnds(ctx, w, w.worker2)
	}, SpecTimeout(specTimeout))
})
