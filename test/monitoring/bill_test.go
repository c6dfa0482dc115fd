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

	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/specs"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// bill is what is read of what `kubectl trainjob usage` prints.
type bill struct {
	From  time.Time                    `json:"from"`
	Notes []string                     `json:"notes"`
	Lines []map[string]json.RawMessage `json:"lines"`
}

// columns are those of a bill that are phases or outcomes.
var columns = []string{
	metrics.PhaseWaiting, metrics.PhaseRunning, metrics.PhaseStopping,
	metrics.OutcomeUseful, metrics.OutcomeLost, metrics.OutcomeFailed, metrics.OutcomeDeleted,
}

// usage prints the bill of a time up to now.
func usage(ctx context.Context, g Gomega, prometheus *server, since time.Duration) bill {
	terminal := specs.Terminal{Kubeconfig: cluster.Kubeconfig}
	stdout, stderr, code := terminal.Run(terminal.Command(ctx, "kubectl-trainjob",
		"usage", "--prometheus", "http://"+prometheus.address, "--since", model.Duration(since).String(), "-o", "json"), "")
	g.Expect(code).To(BeZero(), stderr)
	var printed bill
	g.Expect(json.Unmarshal([]byte(stdout), &printed)).To(Succeed(), stdout)
	return printed
}

// hours returns the GPU hours of a bill by column.
func (b bill) hours(g Gomega) map[string]float64 {
	sums := map[string]float64{}
	for _, line := range b.Lines {
		g.Expect(line["unit"]).To(MatchJSON(`"GPU-hours"`))
		for _, column := range columns {
			var hours float64
			g.Expect(json.Unmarshal(line[column], &hours)).To(Succeed(), column)
			sums[column] += hours
		}
	}
	return sums
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
	for _, column := range columns {
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
			got := usage(ctx, g, prometheus(), 30*24*time.Hour)
			g.Expect(got.Notes).To(BeEmpty())
			g.Expect(got.hours(g)).To(closeTo(want))
		}).Should(Succeed())
	}, NodeTimeout(3*time.Minute))

	It("prints the bill of a time that begins in the middle of the run", func(ctx context.Context) {
		Eventually(ctx, func(g Gomega) {
			got := usage(ctx, g, prometheus(), time.Since(began())/2)
			g.Expect(got.Notes).To(BeEmpty())
			want := served(ctx, g)
			for metric, by := range map[string]string{metrics.QuotaSeconds.Name: metrics.Phase, metrics.EndedSeconds.Name: metrics.Outcome} {
				expr := fmt.Sprintf("sum by (%s) (last_over_time(%s{resource=%q}[1h])) / 3600", by, metric, kit.GPU)
				for _, sum := range prometheus().now(ctx, expr, got.From) {
					want[string(sum.Metric[model.LabelName(by)])] -= float64(sum.Value)
				}
			}
			g.Expect(want).To(HaveKeyWithValue(metrics.PhaseRunning, BeNumerically(">", 0)))
			g.Expect(got.hours(g)).To(closeTo(want))
		}).Should(Succeed())
	}, NodeTimeout(3*time.Minute))
}
