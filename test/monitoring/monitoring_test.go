// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/usage"
	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/specs"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// notHere says of which series this control plane has none, and why. All others that a dashboard asks for have to be there.
var notHere = map[string]string{
	"kube_node_": "kube-state-metrics does not run here",
	"kube_pod_":  "kube-state-metrics does not run here",
	"DCGM_FI_":   "fake nodes have no GPUs for NVIDIA's exporter",
}

// have to fire here, and no others may. Nobody leads until the lease of the killed manager is over.
var haveToFire = []string{
	"KueueTrainerAbsent", "KueueTrainerNoLeader", "KueueTrainerWebhookFailing", "KueueTrainerTrainJobsStuck", "KueueTrainerQuotaHeldWithoutPods",
}

var _ = Describe("A Prometheus that scrapes the managers through a churn with preemption, a stuck job and a killed manager", Ordered, ContinueOnFailure, func() {
	var (
		prometheus *server
		run        promv1.Range
	)

	BeforeAll(func(ctx context.Context) {
		// The two managers tell what they tell in production: Kueue its resources, and this one to readers with a token alone.
		specs.Must(cluster.RestartKueueWith(ctx, GinkgoWriter, map[string]any{"metrics": map[string]any{"enableClusterQueueResources": true}}, "kueue"))
		specs.Must(cluster.RestartManagerWith(ctx, GinkgoWriter, map[string]any{"metrics": map[string]any{"secureServing": true}}))
		prometheus = startPrometheus(ctx, makeTeams(ctx))
		run.Start = time.Now()
		stop := churn(ctx)
		makeStuck(ctx)
		makeUnschedulable(ctx)
		Eventually(ctx, prometheus.firing).WithArguments(ctx).WithTimeout(2 * time.Minute).
			Should(ContainElements("KueueTrainerTrainJobsStuck", "KueueTrainerQuotaHeldWithoutPods"))
		// How long jobs come and go is what is measured; nothing waits for a condition.
		time.Sleep(time.Until(run.Start.Add(*churnFor)))

		control(ctx, "kill", "kueue-trainer")
		Eventually(ctx, func() []string {
			refused(ctx)
			return prometheus.firing(ctx)
		}).Should(ContainElements("KueueTrainerAbsent", "KueueTrainerWebhookFailing"))
		control(ctx, "start", "kueue-trainer")
		Eventually(ctx, prometheus.firing).WithArguments(ctx).ShouldNot(ContainElement("KueueTrainerAbsent"))
		Eventually(ctx, refused).WithArguments(ctx).Should(BeFalse())
		back := time.Now()
		time.Sleep(time.Until(back.Add(*churnFor / 4)))
		stop()
		run.End = time.Now()
		run.Step = max(scrapeInterval, run.End.Sub(run.Start)/100).Round(time.Second)
	}, NodeTimeout(15*time.Minute))

	for _, name := range []string{"trainjobs", "gpu-pools", "kueue-trainer"} {
		It("answers every query of dashboard "+name, func(ctx context.Context) {
			asked := 0
			for _, p := range everyPanel(dashboard(name).Panels) {
				for _, t := range p.Targets {
					asked++
					expr := filled(t.Expr, run)
					if reason := unavailable(expr); reason != "" {
						Expect(prometheus.series(ctx, expr, run)).To(BeEmpty(), "%q has data, though %s: %s", p.Title, reason, expr)
						continue
					}
					Expect(prometheus.series(ctx, expr, run)).NotTo(BeEmpty(), "panel %q has no data: %s", p.Title, expr)
				}
			}
			Expect(asked).To(BeNumerically(">=", 15))
		}, NodeTimeout(2*time.Minute))

		It("has values for every variable of dashboard "+name, func(ctx context.Context) {
			for _, v := range dashboard(name).Templating.List {
				query, ok := v.Query.(string)
				parts := regexp.MustCompile(`^label_values\((.*), (\w+)\)$`).FindStringSubmatch(query)
				if !ok || parts == nil {
					Expect(v.Name).To(Equal("datasource"))
					continue
				}
				values, _, err := prometheus.LabelValues(ctx, parts[2], []string{filled(parts[1], run)}, run.Start, run.End)
				Expect(err).NotTo(HaveOccurred())
				Expect(values).NotTo(BeEmpty(), query)
			}
		}, NodeTimeout(time.Minute))
	}

	It("has every series that alerts and recording rules ask for", func(ctx context.Context) {
		asked := 0
		for _, group := range rulesOf(filepath.Join(root, "config", "monitoring", "rules.yaml")).Groups {
			for _, rule := range group.Rules {
				for _, selector := range prometheus.selectors(ctx, rule["expr"].(string)) {
					asked++
					Expect(prometheus.series(ctx, selector, run)).NotTo(BeEmpty(), "%v%v asks for %s", rule["alert"], rule["record"], selector)
				}
			}
		}
		Expect(asked).To(BeNumerically(">=", 20))
	}, NodeTimeout(time.Minute))

	It("fires the alerts that it should, and no others", func(ctx context.Context) {
		var fired []string
		for _, series := range prometheus.series(ctx, `ALERTS{alertstate="firing"}`, run) {
			fired = append(fired, string(series.Metric[model.AlertNameLabel]))
		}
		slices.Sort(fired)
		Expect(slices.Compact(fired)).To(ConsistOf(haveToFire))
	}, NodeTimeout(time.Minute))

	It("sees totals go on where the killed manager left them", func(ctx context.Context) {
		for _, total := range []string{"kueue_trainer:quota_resource_seconds:max", "kueue_trainer:ended_resource_seconds:max"} {
			during := "[" + model.Duration(run.End.Sub(run.Start)).String() + "]"
			Expect(prometheus.now(ctx, "sum(max_over_time("+total+during+")) > 0", run.End)).To(HaveLen(1))
			// Five seconds of all GPUs: what was told may be ahead of what can be proved later.
			Expect(prometheus.now(ctx, "max_over_time("+total+during+") - "+total+" > 5 * 48", run.End)).To(BeEmpty(), "totals that went back")
		}
	}, NodeTimeout(time.Minute))

	// Last: it deletes all TrainJobs.
	billed(func() *server { return prometheus }, func() time.Time { return run.Start })
})

func everyPanel(panels []panel) []panel {
	var all []panel
	for _, p := range panels {
		all = append(all, p)
		all = append(all, everyPanel(p.Panels)...)
	}
	return all
}

func filled(expr string, run promv1.Range) string {
	return strings.NewReplacer(
		"$__rate_interval", (5 * apiServerInterval).String(), "$__interval", run.Step.String(),
		"$__range_s", fmt.Sprint(int(run.End.Sub(run.Start).Seconds())), "$__range", run.End.Sub(run.Start).Round(time.Second).String(),
		"$cluster_queue", ".*", "$namespace", ".*", "$resource", "nvidia.com/gpu").Replace(expr)
}

// unavailable returns why nobody here serves what an expression asks for; empty where somebody has to.
func unavailable(expr string) string {
	for series, reason := range notHere {
		if strings.Contains(expr, series) {
			return reason
		}
	}
	return ""
}

// columns are those of a bill that are phases or outcomes, in hours.
func columns(line usage.Line) map[string]*float64 {
	return map[string]*float64{
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
			hours[column] += *n
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
		all = append(all, WithTransform(func(got map[string]float64) float64 { return got[column] }, BeNumerically("~", want[column], 1e-6)))
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
