// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"slices"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
)

// Trainer refuses every change of the list while a job runs: a client that applies its own
// list can only get through when ours is put back before Trainer looks.
var _ = Describe("The manager's entry on a running TrainJob", func() {
	It("comes back when a client applies a list that does not have it, and the job runs on", core, Label("invariant", "exact"), func(ctx context.Context) {
		w := newPools(ctx, "8", "0")
		w.Make(ctx, w.Job("runs").GPUs("8").PodAnnotations("example.com/user", "a", "b", "node").Obj())
		w.entryComesBack(ctx, "runs", withoutOurs)
	}, SpecTimeout(specTimeout))

	It("comes back when a client applies no list at all, and the job runs on", core, Label("invariant", "exact"), func(ctx context.Context) {
		w := newPools(ctx, "8", "0")
		w.Make(ctx, w.Job("runs").GPUs("8").Obj())
		w.entryComesBack(ctx, "runs", func([]trainer.RuntimePatch) []trainer.RuntimePatch { return nil })
	}, SpecTimeout(specTimeout))
})

// entryComesBack has a client apply its entries to a running job, together with a label.
func (w *site) entryComesBack(ctx context.Context, job string, applied func([]trainer.RuntimePatch) []trainer.RuntimePatch) {
	pods, wl := w.EventuallyRuns(ctx, job, 1, onH100), w.Workload(ctx, job)
	before := w.TrainJob(ctx, job).Spec.RuntimePatches
	Expect(withoutOurs(before)).To(HaveLen(len(before)-1), "the job runs with our entry")

	w.Edit(ctx, job, func(t *trainer.TrainJob) {
		metav1.SetMetaDataLabel(&t.ObjectMeta, "example.com/team", "vision")
		t.Spec.RuntimePatches = applied(t.Spec.RuntimePatches)
	})
	after := w.TrainJob(ctx, job)
	Expect(after.Labels).To(HaveKeyWithValue("example.com/team", "vision"))
	Expect(after.Spec.RuntimePatches).To(Equal(before))
	w.ConsistentlyKeeps(ctx, job, pods, wl)
}

// withoutOurs is the list as a client has it that does not know of the manager.
func withoutOurs(entries []trainer.RuntimePatch) []trainer.RuntimePatch {
	return slices.DeleteFunc(slices.Clone(entries), func(e trainer.RuntimePatch) bool { return e.Manager == patch.Manager })
}
