// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

var _ = Describe("People who look at the TrainJob alone are told", Label("invariant", "nothing-waits-in-silence"), func() {
	It("that its LocalQueue is missing, once, or stopped, or leads nowhere; and it runs when that is put right", core, func(ctx context.Context) {
		w := newPools(ctx, "8", "0")
		stopped := kit.LocalQueue(w.Namespace, "later", w.Name("gpus"))
		stopped.Spec.StopPolicy = new(kueue.Hold)
		w.Make(ctx, w.Job("llm").Queue("later").GPUs("8").Obj(),
			kit.LocalQueue(w.Namespace, "leads-nowhere", w.Name("none")), w.Job("lost").Queue("leads-nowhere").GPUs("8").Obj())
		w.EventuallyTold(ctx, "lost", "NotAdmissible", "cannot be admitted")
		w.EventuallyTold(ctx, "llm", "NotAdmissible", "LocalQueue later doesn't exist; create it in namespace "+w.Namespace)
		w.Touch(ctx, "llm")
		w.EventuallyCaughtUp(ctx)
		Expect(w.EventNotes(ctx, "TrainJob", "llm", "NotAdmissible")).To(HaveLen(1))
		w.Make(ctx, stopped)
		w.EventuallyTold(ctx, "llm", "NotAdmissible", "LocalQueue later is inactive; it starts again with spec.stopPolicy None")
		w.SetStopPolicy(ctx, stopped, kueue.None)
		w.EventuallyRuns(ctx, "llm", 1, onH100)
	}, SpecTimeout(specTimeout))

	It("what an admission check that retries or rejects says", core, func(ctx context.Context) {
		w := newPools(ctx, "8", "0")
		check := w.ControlledCheck(ctx)
		w.Make(ctx, w.Job("llm").GPUs("8").Obj())
		w.SetCheck(ctx, "llm", check, kueue.CheckStateRetry, "the site is full")
		w.EventuallyTold(ctx, "llm", "AdmissionCheckRetries", "gave its quota back to try again")
		w.SetCheck(ctx, "llm", check, kueue.CheckStateRejected, "no such site")
		w.EventuallyTold(ctx, "llm", "AdmissionCheckRejected", fmt.Sprintf("%q (no such site)", check))
	}, SpecTimeout(specTimeout))
})

// Trainer 2.1 and 2.2 keep a runtime that is in use.
var _ = It("A runtime that comes back is noticed by the TrainJobs that wait for it", Label("invariant", "nothing-waits-in-silence"), core, since(world.Trainer23), func(ctx context.Context) {
	w := newPools(ctx, "8", "0")
	runtime := w.CopyRuntime(ctx, "torch-distributed")
	w.MakeRunning(ctx, w.Job("runs").GPUs("8"), 1, onH100, runtime.DeepCopy())
	w.MakePending(ctx, w.Job("waits").Runtime(runtime.Name).GPUs("8"))
	Expect(w.Delete(ctx, runtime.DeepCopy())).To(Succeed())
	w.Finish(ctx, "runs", "succeeded")
	w.Touch(ctx, "runs")
	Expect(w.Create(ctx, runtime.DeepCopy())).To(Succeed())
	w.EventuallyRuns(ctx, "waits", 1, onH100)
}, SpecTimeout(specTimeout))
