// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

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
