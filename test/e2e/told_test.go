// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

var _ = Describe("People who look at the TrainJob alone are told", Label("invariant", "nothing-waits-in-silence"), func() {
	It("that its LocalQueue is missing, once; and it queues when that is made", core, func(ctx context.Context) {
		w := newWorld(ctx)
		w.Make(ctx,
			w.Flavor("h100", onH100),
			kit.ClusterQueue(w.Name("gpus"), kit.Quota{Flavor: w.Name("h100"), GPUs: "8"}),
			w.Job("llm").GPUs("8").Obj())
		w.EventuallyTold(ctx, "llm", "NotAdmissible", "LocalQueue queue doesn't exist; create it in namespace "+w.Namespace)
		w.Touch(ctx, "llm")
		w.EventuallyCaughtUp(ctx)
		Expect(w.EventNotes(ctx, "TrainJob", "llm", "NotAdmissible")).To(HaveLen(1))
		w.Make(ctx, w.LocalQueue())
		w.EventuallyRuns(ctx, "llm", 1, onH100)
	}, SpecTimeout(specTimeout))

	It("that its LocalQueue is stopped", core, func(ctx context.Context) {
		w := newPools(ctx, "8", "0")
		w.SetStopPolicy(ctx, w.LocalQueue(), kueue.Hold)
		w.Make(ctx, w.Job("llm").GPUs("8").Obj())
		w.EventuallyTold(ctx, "llm", "NotAdmissible", "LocalQueue queue is inactive; it starts again with spec.stopPolicy None")
		w.SetStopPolicy(ctx, w.LocalQueue(), kueue.None)
		w.EventuallyRuns(ctx, "llm", 1, onH100)
	}, SpecTimeout(specTimeout))

	It("that its ClusterQueue is not active", core, func(ctx context.Context) {
		w := newPools(ctx, "8", "0")
		w.Make(ctx, kit.LocalQueue(w.Namespace, "leads-nowhere", w.Name("none")), w.Job("llm").Queue("leads-nowhere").GPUs("8").Obj())
		w.EventuallyTold(ctx, "llm", "NotAdmissible", "cannot be admitted")
	}, SpecTimeout(specTimeout))

	It("that it was deactivated, and by whom", core, func(ctx context.Context) {
		w, _ := newRunning(ctx, "llm")
		w.Activate(ctx, "llm", false)
		w.EventuallyTold(ctx, "llm", "WorkloadDeactivated", "set its spec.active to true")
		w.EventuallyAtTheGate(ctx, "llm")
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

var _ = Describe("A runtime that comes back", Label("invariant", "nothing-waits-in-silence"), func() {
	// Trainer 2.1 and 2.2 keep a runtime that is in use.
	It("is noticed by the TrainJobs that wait for it", core, since(world.Trainer23), func(ctx context.Context) {
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
})

// logLine is what docs/logging.md says that a line about a TrainJob has.
type logLine struct {
	Level, Msg, Reason string
	TrainJob, Workload types.NamespacedName
}

// docs/logging.md names the messages.
var _ = Describe("The manager's log", Label("control"), func() {
	It("has a line for each decision about a TrainJob, and nothing of its environment", func(ctx context.Context) {
		localOnly("the spec reads the manager's log")
		externalOnly("Kueue's in-tree integration writes another log")
		w := newPools(ctx, "8", "0")
		job := w.Job("llm").GPUs("8").Obj()
		job.Spec.Trainer.Env = []corev1.EnvVar{{Name: "TOKEN", Value: "s3cret-" + w.Suffix}}
		w.Make(ctx, job)
		w.EventuallyRuns(ctx, "llm", 1, onH100)
		w.Activate(ctx, "llm", false)
		w.EventuallyAtTheGate(ctx, "llm")
		w.EventuallyPods(ctx, "llm", 0)
		w.Activate(ctx, "llm", true)
		w.EventuallyRuns(ctx, "llm", 1, onH100)
		workload := types.NamespacedName{Namespace: w.Namespace, Name: w.Workload(ctx, "llm").Name}
		w.Finish(ctx, "llm", "succeeded")
		w.eventuallyTrainJob(ctx, "llm", trainer.TrainJobComplete)

		want := []string{
			"Created the Workload of TrainJob", "Started TrainJob", "Stopped TrainJob", "Workload was deactivated",
			"Found no pod left and let the quota go", "Set the admission gate", "Finished the Workload of TrainJob",
		}
		told := func(g Gomega) map[string]int {
			data, err := os.ReadFile(filepath.Join(cluster.LocalDir(), "logs", "kueue-trainer.log"))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(string(data)).NotTo(ContainSubstring("s3cret-" + w.Suffix))
			count := map[string]int{}
			for line := range bytes.Lines(data) {
				var l logLine
				g.Expect(json.Unmarshal(line, &l)).To(Succeed(), "%s", line)
				if l.TrainJob != (types.NamespacedName{Namespace: w.Namespace, Name: "llm"}) {
					continue
				}
				count[l.Msg]++
				if l.Msg == "Started TrainJob" {
					g.Expect(l).To(Equal(logLine{Level: "info", Msg: l.Msg, Reason: "Started", TrainJob: l.TrainJob, Workload: workload}))
				}
			}
			return count
		}
		Eventually(ctx, func(g Gomega) {
			count := told(g)
			for _, message := range want {
				g.Expect(count).To(HaveKey(message))
			}
			g.Expect(count["Started TrainJob"]).To(Equal(2))
		}).Should(Succeed())
	}, SpecTimeout(specTimeout))
})
