// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"maps"
	"net/http"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/labels"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

var _ = Describe("The manager's metrics", Label("metrics", "local"), func() {
	It("tell how a TrainJob starts, is preempted, starts again and ends", core, func(ctx context.Context) {
		w := newPools(ctx, "16", "0")
		w.Make(ctx, kit.Priority(w.Name("urgent"), 1000))
		token := w.Token(ctx, "kueue-trainer-metrics-reader")
		// told is what a series of the spec's queue says, which may have one label more.
		told := func(m metrics.Metric, more ...string) func() float64 {
			of := map[string]string{metrics.ClusterQueue: w.Name("gpus"), metrics.Namespace: w.Namespace, metrics.LocalQueue: "queue"}
			if len(more) > 0 {
				of[more[0]] = more[1]
			}
			return func() float64 { return scraped(ctx, token, m, of) }
		}

		w.MakeRunning(ctx, w.Job("patient").Nodes(2).GPUs("8"), 2, onH100)
		Eventually(ctx, told(metrics.TrainJobs, metrics.State, metrics.StateRunning)).Should(Equal(1.0))
		Eventually(ctx, told(metrics.StartedUntilReady)).Should(Equal(1.0))
		Expect(told(metrics.Starts, metrics.Kind, metrics.StartFirst)()).To(Equal(1.0))
		Expect(told(metrics.AdmittedUntilStarted)()).To(Equal(1.0))
		Expect(scraped(ctx, token, metrics.WebhookRequests, map[string]string{
			metrics.Kind: metrics.WebhookMutating, metrics.Operation: "CREATE", metrics.Outcome: metrics.AnswerAllowed, metrics.Reason: "",
		})).To(BeNumerically(">", 0))

		w.MakeRunning(ctx, w.Job("urgent").Priority(w.Name("urgent")).Nodes(2).GPUs("8"), 2, onH100)
		Eventually(ctx, told(metrics.TrainJobs, metrics.State, metrics.StateQueued)).Should(Equal(1.0))
		Eventually(ctx, told(metrics.TrainJobs, metrics.State, metrics.StateRunning)).Should(Equal(1.0))
		Expect(told(metrics.Stops, metrics.Reason, kueue.WorkloadEvictedByPreemption)()).To(Equal(1.0))
		Expect(told(metrics.EvictedUntilStopped)()).To(Equal(1.0))

		w.Finish(ctx, "urgent", "succeeded")
		w.EventuallyRuns(ctx, "patient", 2, onH100)
		Eventually(ctx, told(metrics.StartedUntilReady)).Should(Equal(3.0))
		Expect(told(metrics.Starts, metrics.Kind, metrics.StartFirst)()).To(Equal(2.0))
		Expect(told(metrics.Starts, metrics.Kind, metrics.StartAgain)()).To(Equal(1.0))

		w.Finish(ctx, "patient", "succeeded")
		Eventually(ctx, func() string { return fetch(ctx, "metrics", "/metrics") }).ShouldNot(MatchRegexp(
			`(?m)^%s\{.*namespace="%s"`, metrics.TrainJobs.Name, w.Namespace))
		Expect(told(metrics.EvictedUntilStopped)()).To(Equal(1.0))
		Eventually(ctx, told(metrics.AdmittedUntilEnded)).Should(Equal(2.0))
	}, SpecTimeout(specTimeout))

	It("and debug pages are for those alone whom the API server lets get them", core, func(ctx context.Context) {
		w := newWorld(ctx)
		nobody, scraper, admin := w.Token(ctx, ""), w.Token(ctx, "kueue-trainer-metrics-reader"), w.Token(ctx, "kueue-trainer-debug-reader")
		pages := []string{"/metrics", "/debug/health", "/debug/pprof/", "/debug/pprof/heap"}
		answers := func(token string) func() []int {
			return func() []int {
				return expect.Each(pages, func(page string) int {
					code, _ := answerOf(ctx, "metrics", page, token)
					return code
				})
			}
		}
		Expect(answers("")()).To(Equal([]int{401, 401, 401, 401}))
		Expect(answers(nobody)()).To(Equal([]int{403, 403, 403, 403}))
		// A binding takes a moment to count.
		Eventually(ctx, answers(scraper)).Should(Equal([]int{200, 403, 403, 403}))
		Eventually(ctx, answers(admin)).Should(Equal([]int{403, 200, 200, 200}))
		_, health := answerOf(ctx, "metrics", "/debug/health", admin)
		Expect(health).To(And(
			ContainSubstring("[+]in-tree-integration-off ok\n"), ContainSubstring("\nleader: true\n"),
			ContainSubstring("\nTrainer: "+trainerOf(ctx)+"\n"), ContainSubstring("\nin-tree integration: off\n"),
			ContainSubstring("\nKueue's configuration: read, as of resourceVersion ")))
	}, SpecTimeout(specTimeout))
})

// scraped returns the value of a series of the manager's, 0 where there is none.
func scraped(ctx context.Context, token string, metric metrics.Metric, of map[string]string) (value float64) {
	code, body := answerOf(ctx, "metrics", "/metrics", token)
	if code != http.StatusOK {
		// A binding takes a moment to count.
		return -1
	}
	// What has no series yet is not served.
	_ = world.EachSeries(body, metric.Name, func(has labels.Set, is float64) {
		if maps.Equal(has, of) {
			value = is
		}
	})
	return value
}

// fetch returns what the manager serves to an admin; an error is an answer too.
func fetch(ctx context.Context, purpose, path string) string {
	_, body := answerOf(ctx, purpose, path, cluster.Config.BearerToken)
	return body
}

// answerOf returns the status and the body of what the manager serves; an error is a body without.
func answerOf(ctx context.Context, purpose, path, token string) (status int, body string) {
	status, body, err := cluster.AskManager(ctx, purpose, path, token)
	if err != nil {
		return 0, err.Error()
	}
	return status, body
}
