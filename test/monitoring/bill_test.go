// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/common/model"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/usage"
	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/specs"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// columns are those of a bill that are phases or outcomes, in hours.
func columns(line usage.Line) map[string]float64 {
	return map[string]float64{
		metrics.PhaseWaiting: line.Waiting, metrics.PhaseRunning: line.Running, metrics.PhaseStopping: line.Stopping,
		metrics.OutcomeUseful: line.Useful, metrics.OutcomeLost: line.Lost, metrics.OutcomeFailed: line.Failed, metrics.OutcomeDeleted: line.Deleted,
	}
}

// printed returns the bill of a time up to now, and its GPU hours by column.
func printed(ctx context.Context, g Gomega, prometheus *server, since time.Duration) (bill usage.Bill, hours map[string]float64) {
	terminal := specs.Terminal{Kubeconfig: cluster.Kubeconfig}
	stdout, stderr, code := terminal.Run(terminal.Command(ctx, "kubectl-trainjob",
		"usage", "--prometheus", "http://"+prometheus.address, "--since", model.Duration(since).String(), "-o", "json"), "")
	g.Expect(code).To(BeZero(), stderr)
	g.Expect(json.Unmarshal([]byte(stdout), &bill)).To(Succeed(), stdout)
	g.Expect(bill.Notes).To(BeEmpty())
	hours = map[string]float64{}
	for _, line := range bill.Lines {
		g.Expect(line.Unit).To(Equal("GPU-hours"))
		for column, n := range columns(line) {
			hours[column] += n
		}
	}
	return bill, hours
}

// served returns the GPU hours by column that the manager's own endpoint tells.
func served(ctx context.Context, g Gomega) map[string]float64 {
	status, page, err := cluster.AskManager(ctx, "metrics", "/metrics", cluster.Config.BearerToken)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(status).To(Equal(http.StatusOK))
	hours, err := world.LedgerSeconds(page, map[string]string{metrics.Resource: string(kit.GPU)})
	g.Expect(err).NotTo(HaveOccurred())
	for column := range hours {
		hours[column] /= 3600
	}
	return hours
}

// closeTo matches GPU hours by column, to a millionth.
func closeTo(want map[string]float64) OmegaMatcher {
	var all []OmegaMatcher
	for column := range columns(usage.Line{}) {
		all = append(all, WithTransform(func(got map[string]float64) float64 { return got[column] },
			BeNumerically("~", want[column], 1e-6)))
	}
	return And(all...)
}

// billed has a Prometheus print the bill of a run, after its end.
func billed(prometheus func() *server, began func() time.Time) {
	It("prints the bill that the manager tells, though the manager was killed", func(ctx context.Context) {
		endAll(ctx)
		Eventually(ctx, func(g Gomega) {
			want := served(ctx, g)
			g.Expect(want).To(HaveKeyWithValue(metrics.PhaseRunning, BeNumerically(">", 0)))
			g.Expect(want).To(HaveKeyWithValue(metrics.OutcomeLost, BeNumerically(">", 0)), "runs were preempted")
			_, got := printed(ctx, g, prometheus(), 30*24*time.Hour)
			g.Expect(got).To(closeTo(want))
		}).Should(Succeed())
	}, NodeTimeout(3*time.Minute))

	It("prints the bill of a time that begins in the middle of the run", func(ctx context.Context) {
		Eventually(ctx, func(g Gomega) {
			bill, got := printed(ctx, g, prometheus(), time.Since(began())/2)
			want := served(ctx, g)
			for metric, by := range map[string]string{metrics.QuotaSeconds.Name: metrics.Phase, metrics.EndedSeconds.Name: metrics.Outcome} {
				expr := fmt.Sprintf("sum by (%s) (last_over_time(%s{resource=%q}[1h])) / 3600", by, metric, kit.GPU)
				for _, sum := range prometheus().now(ctx, expr, bill.From) {
					want[string(sum.Metric[model.LabelName(by)])] -= float64(sum.Value)
				}
			}
			g.Expect(want).To(HaveKeyWithValue(metrics.PhaseRunning, BeNumerically(">", 0)))
			g.Expect(got).To(closeTo(want))
		}).Should(Succeed())
	}, NodeTimeout(3*time.Minute))
}
