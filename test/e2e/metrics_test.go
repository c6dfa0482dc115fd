// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/specs"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

var _ = Describe("The manager's metrics", Label("metrics"), func() {
	BeforeEach(func() { localOnly("the specs of this group read what the manager serves on this machine") })

	It("tell how a TrainJob starts, is preempted, starts again and ends", core, func(ctx context.Context) {
		w := newPools(ctx, "16", "0")
		w.Make(ctx, kit.Priority(w.Name("urgent"), 1000))
		token := w.Token(ctx, "kueue-trainer-metrics-reader")
		told := func(m metrics.Metric, more ...string) func() float64 {
			return func() float64 { return scraped(ctx, token, m.Name, w.queueLabels(more...)) }
		}
		counted := func(m metrics.Metric) func() float64 {
			return func() float64 { return scraped(ctx, token, m.Name+"_count", w.queueLabels()) }
		}

		w.MakeRunning(ctx, w.Job("patient").Nodes(2).GPUs("8"), 2, onH100)
		Eventually(ctx, told(metrics.TrainJobs, metrics.State, metrics.StateRunning)).Should(Equal(1.0))
		Eventually(ctx, counted(metrics.StartedUntilReady)).Should(Equal(1.0))
		Expect(told(metrics.Starts, metrics.Kind, metrics.StartFirst)()).To(Equal(1.0))
		Expect(counted(metrics.AdmittedUntilStarted)()).To(Equal(1.0))

		w.MakeRunning(ctx, w.Job("urgent").Priority(w.Name("urgent")).Nodes(2).GPUs("8"), 2, onH100)
		Eventually(ctx, told(metrics.TrainJobs, metrics.State, metrics.StateQueued)).Should(Equal(1.0))
		Eventually(ctx, told(metrics.TrainJobs, metrics.State, metrics.StateRunning)).Should(Equal(1.0))
		Expect(told(metrics.Stops, metrics.Reason, kueue.WorkloadEvictedByPreemption)()).To(Equal(1.0))
		Expect(counted(metrics.EvictedUntilStopped)()).To(Equal(1.0))

		w.Finish(ctx, "urgent", "succeeded")
		w.EventuallyRuns(ctx, "patient", 2, onH100)
		Eventually(ctx, counted(metrics.StartedUntilReady)).Should(Equal(3.0))
		Expect(told(metrics.Starts, metrics.Kind, metrics.StartFirst)()).To(Equal(2.0))
		Expect(told(metrics.Starts, metrics.Kind, metrics.StartAgain)()).To(Equal(1.0))

		w.Finish(ctx, "patient", "succeeded")
		Eventually(ctx, func() string { return fetch(ctx, "metrics", "/metrics") }).ShouldNot(MatchRegexp(
			`(?m)^%s\{.*namespace="%s"`, metrics.TrainJobs.Name, w.Namespace))
		Expect(counted(metrics.EvictedUntilStopped)()).To(Equal(1.0))
		Eventually(ctx, counted(metrics.AdmittedUntilEnded)).Should(Equal(2.0))
	}, SpecTimeout(specTimeout))

	It("tell who stopped a TrainJob, and do not call it stuck that somebody deactivated", func(ctx context.Context) {
		w := newPools(ctx, "8", "0")
		token := w.Token(ctx, "kueue-trainer-metrics-reader")
		told := func(m metrics.Metric, label, value string) func() float64 {
			return func() float64 { return scraped(ctx, token, m.Name, w.queueLabels(label, value)) }
		}
		w.MakeRunning(ctx, w.Job("stopped").GPUs("8"), 1, onH100)
		Eventually(ctx, told(metrics.TrainJobs, metrics.State, metrics.StateRunning)).Should(Equal(1.0))
		w.Edit(ctx, "stopped", func(t *trainer.TrainJob) { t.Spec.Suspend = ptr.To(true) })
		Eventually(ctx, told(metrics.Stops, metrics.Reason, metrics.StopByUser)).Should(Equal(1.0))
		Eventually(ctx, told(metrics.Starts, metrics.Kind, metrics.StartAgain)).Should(Equal(1.0))
		Eventually(ctx, told(metrics.TrainJobs, metrics.State, metrics.StateRunning)).Should(Equal(1.0))

		w.Activate(ctx, "stopped", false)
		Eventually(ctx, told(metrics.Stops, metrics.Reason, kueue.WorkloadDeactivated)).Should(Equal(1.0))
		w.EventuallyTold(ctx, "stopped", "WorkloadDeactivated", "set its spec.active to true")
		w.EventuallyCaughtUp(ctx)
		Expect(told(metrics.StuckTrainJobs, metrics.Reason, "WorkloadDeactivated")()).To(BeZero())
		w.Activate(ctx, "stopped", true)
		Eventually(ctx, told(metrics.TrainJobs, metrics.State, metrics.StateRunning)).Should(Equal(1.0))

		orphan := w.Job("orphan").GPUs("8")
		orphan.Labels["kueue.x-k8s.io/prebuilt-workload-name"] = "does-not-exist"
		w.Make(ctx, orphan.Obj())
		Eventually(ctx, told(metrics.StuckTrainJobs, metrics.Reason, "PrebuiltWorkloadUnusable")).Should(Equal(1.0))
	}, SpecTimeout(specTimeout))

	It("count what the webhooks refuse, by the field", core, func(ctx context.Context) {
		w := newPools(ctx, "8", "0")
		refusals := func() float64 {
			return scraped(ctx, cluster.Config.BearerToken, metrics.WebhookRequests.Name, map[string]string{
				metrics.Kind: metrics.WebhookMutating, metrics.Operation: "CREATE", metrics.Outcome: metrics.AnswerRefused, metrics.Reason: "spec.runtimeRef",
			})
		}
		before := refusals()
		Expect(w.Create(ctx, w.Job("refused").Runtime("not-there").Obj())).NotTo(Succeed())
		Expect(refusals()).To(BeNumerically(">", before))
	}, SpecTimeout(specTimeout))

	It("and debug pages are for those alone whom the API server lets get them", core, func(ctx context.Context) {
		w := newWorld(ctx)
		nobody, scraper, admin := w.Token(ctx, ""), w.Token(ctx, "kueue-trainer-metrics-reader"), w.Token(ctx, "kueue-trainer-debug-reader")
		pages := []string{"/metrics", "/debug/health", "/debug/pprof/", "/debug/pprof/heap"}
		answers := func(token string) func() []int {
			return func() []int {
				var codes []int
				for _, page := range pages {
					code, _ := answerOf(ctx, "metrics", page, token)
					codes = append(codes, code)
				}
				return codes
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

// These specs run a second manager and stop the first, which only a local control plane lets them do.
var _ = Describe("The metrics of a manager that does not lead", Label("control", "metrics"), Serial, func() {
	It("say nothing of TrainJobs before it leads, and of LocalQueues only what it is configured to", long, func(ctx context.Context) {
		localOnly("the specs of this group stop components")
		w, _ := newRunning(ctx, "runs")

		second := w.secondManager(ctx, map[string]any{"localQueueLabels": false})
		scrape := func() string {
			_, body, _ := world.Ask(ctx, "https://"+second+"/metrics", cluster.Config.BearerToken)
			return body
		}
		running := fmt.Sprintf("\n%s{cluster_queue=%q,local_queue=\"\",namespace=\"\",state=\"running\"} 1\n", metrics.TrainJobs.Name, w.Name("gpus"))
		Eventually(ctx, scrape).Should(And(
			ContainSubstring("\n"+metrics.TrainerInfo.Name+"{"), ContainSubstring("\nleader_election_master_status{name=\"manager.kueue-trainer.dev\"} 0\n")))
		for _, m := range []metrics.Metric{metrics.TrainJobs, metrics.GatedPods, metrics.WebhooksEveryTrainJob} {
			Expect(scrape()).NotTo(ContainSubstring("\n" + m.Name))
		}
		w.stopManager(ctx)
		Eventually(ctx, scrape).Should(And(ContainSubstring(running),
			ContainSubstring("\n"+metrics.GatedPods.Name+" 0\n"), ContainSubstring("\nleader_election_master_status{name=\"manager.kueue-trainer.dev\"} 1\n")))
	}, SpecTimeout(specTimeout))
})

// secondManager runs one more manager until the spec is over, with fields of its metrics'
// configuration set, and returns where its metrics are.
func (w *site) secondManager(ctx context.Context, set map[string]any) string {
	address := fmt.Sprintf("127.0.0.1:%d", world.FreePort())
	set["bindAddress"] = address
	file := filepath.Join(GinkgoT().TempDir(), "configuration.yaml")
	Expect(cluster.WriteConfig("kueue-trainer", file, map[string]any{
		"metrics": set, "health": map[string]any{"healthProbeBindAddress": "0"}, "webhook": map[string]any{"port": world.FreePort()},
	})).To(Succeed())

	manager := exec.Command(filepath.Join(specs.Root(), "bin", "kueue-trainer"), "--config="+file)
	manager.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(cluster.LocalDir(), "kubeconfigs", "kueue-trainer"))
	manager.Stdout, manager.Stderr = GinkgoWriter, GinkgoWriter
	Expect(manager.Start()).To(Succeed())
	DeferCleanup(func() {
		Expect(manager.Process.Signal(syscall.SIGTERM)).To(Succeed())
		_ = manager.Wait()
	})
	return address
}

// queueLabels returns the labels of metrics of the spec's queue, and more by name and value.
func (w *site) queueLabels(more ...string) map[string]string {
	labels := map[string]string{metrics.ClusterQueue: w.Name("gpus"), metrics.Namespace: w.Namespace, metrics.LocalQueue: "queue"}
	for pair := range slices.Chunk(more, 2) {
		labels[pair[0]] = pair[1]
	}
	return labels
}

// scraped returns the value of a series of the manager's, 0 where there is none.
func scraped(ctx context.Context, token, name string, labels map[string]string) float64 {
	code, body := answerOf(ctx, "metrics", "/metrics", token)
	if code != http.StatusOK {
		// A binding takes a moment to count.
		return -1
	}
	pairs := make([]string, 0, len(labels))
	for _, label := range slices.Sorted(maps.Keys(labels)) {
		pairs = append(pairs, fmt.Sprintf("%s=%q", label, labels[label]))
	}
	series := fmt.Sprintf("%s{%s} ", name, strings.Join(pairs, ","))
	for line := range strings.Lines(body) {
		if text, ok := strings.CutPrefix(line, series); ok {
			value, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
			Expect(err).NotTo(HaveOccurred(), line)
			return value
		}
	}
	return 0
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
