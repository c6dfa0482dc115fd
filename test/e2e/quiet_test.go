// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kueue-trainer/kueue-trainer/pkg/ledger"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// These specs stop processes and read the audit log, which only a local control plane
// lets them do.
var _ = Describe("Before it is known whether the in-tree integration is active", Label("control"), Serial, func() {
	BeforeEach(func() {
		externalOnly("the specs of this group stop components and read the audit log")
		localOnly("the specs of this group stop components and read the audit log")
		DeferCleanup(func(ctx context.Context) { Expect(cluster.Repair(ctx, GinkgoWriter)).To(Succeed()) })
	})

	It("a start beside it writes nothing, before the answer and after", since(world.Trainer22), long, Label("invariant", "stock-neighbours"), func(ctx context.Context) {
		w := newPools(ctx, "8", "0", gpuToleration)
		Expect(cluster.HandOver(ctx, world.Both, GinkgoWriter)).To(Succeed())
		Eventually(ctx, func() string { return fetch(ctx, "health", "/readyz?verbose") }).Should(ContainSubstring("[-]in-tree-integration-off failed"))
		w.Make(ctx, w.Job("runs").GPUs("8").Obj())
		pods, wl := w.EventuallyRuns(ctx, "runs", 1, onH100), w.Workload(ctx, "runs")
		// The in-tree integration gives no gate, so this one is written by who looks after it.
		w.MakePending(ctx, w.Job("waits").GPUs("8"))

		w.control(ctx, "stop", "kueue-trainer", "kueue")
		writes := openManagerWrites()
		w.control(ctx, "start", "kueue-trainer")
		Eventually(ctx, func() string { return fetch(ctx, "metrics", "/metrics") }).Should(ContainSubstring("\nkueue_trainer_in_tree_integration{state=\"unknown\"} 1\n"))
		Consistently(ctx, writes.all).Should(BeEmpty())

		w.control(ctx, "start", "kueue")
		Eventually(ctx, func() string { return fetch(ctx, "metrics", "/metrics") }).Should(ContainSubstring("\nkueue_trainer_in_tree_integration{state=\"active\"} 1\n"))
		w.Finish(ctx, "runs", "succeeded")
		w.EventuallyRuns(ctx, "waits", 1, onH100)
		account := " configmaps " + ledger.ConfigMapName + " "
		Expect(slices.DeleteFunc(writes.all(), func(write string) bool { return strings.Contains(write, account) })).To(BeEmpty())
		Expect(pods).To(HaveLen(1))
		Expect(w.Workload(ctx, "runs").UID).To(Equal(wl.UID))
	}, SpecTimeout(specTimeout))
})

// control does something to components of a local control plane, one after the other.
func (w *site) control(ctx context.Context, action string, components ...string) {
	for _, component := range components {
		Expect(cluster.Control(ctx, action, component, GinkgoWriter)).To(Succeed())
	}
}
