// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/dynamic"

	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
	"github.com/kueue-trainer/kueue-trainer/test/ledger"
)

// openLedger watches what the pods of the spec ask for, and what their jobs are charged.
func (w *site) openLedger(ctx context.Context) {
	GinkgoHelper()
	api, err := dynamic.NewForConfig(cluster.Config)
	Expect(err).NotTo(HaveOccurred())
	w.ledger, err = ledger.Watch(ctx, api, w.Namespace)
	Expect(err).NotTo(HaveOccurred())
}

// runsOutside says why pods of this spec run without quota on purpose: what the ledger
// finds is reported, and fails nothing.
func (w *site) runsOutside(why string) { w.outside = why }

// toleratesInactive says that this spec, or Kueue in it, deactivates Workloads, whose
// terminating pods Kueue counts no more.
func (w *site) toleratesInactive() { w.inactive = true }

// audit fails the spec where its pods asked for more than their jobs were charged for.
func (w *site) audit(ctx context.Context) {
	GinkgoHelper()
	Eventually(ctx, w.ledger.CaughtUp).Should(Succeed())
	result, err := w.ledger.Check(ledger.Expectation{TolerateInactive: w.inactive})
	Expect(err).NotTo(HaveOccurred())
	for _, v := range result.Tolerated {
		AddReportEntry("ledger, tolerated", v.String())
	}
	for _, v := range result.Violations {
		AddReportEntry("ledger", v.String())
	}
	if w.outside != "" || cluster.Integration != world.External {
		GinkgoWriter.Printf("ledger: %d violations, not held against the spec: %s\n", len(result.Violations), w.outside)
		return
	}
	Expect(result.Violations).To(BeEmpty(), "pods asked for more than their jobs were charged for")
}
