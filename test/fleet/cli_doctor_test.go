// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
)

// finding is what the specs look at in `kubectl trainjob doctor -o json`.
type finding struct {
	Reason, Object, Problem string
	Commands                []string
}

// doctor returns what is found about an object.
func (c contexts) doctor(ctx context.Context, object string, args ...string) []finding {
	GinkgoHelper()
	stdout, _, _ := c.plugin(ctx, append([]string{"doctor", "-n", "jobs", "-o", "json"}, args...)...)
	var found []finding
	for _, f := range unmarshal[struct{ Findings []finding }](stdout).Findings {
		if f.Object == object {
			found = append(found, f)
		}
	}
	return found
}

// eventuallyFinds waits until doctor finds one thing about an object.
func (c contexts) eventuallyFinds(ctx context.Context, reason, object string) finding {
	GinkgoHelper()
	var found []finding
	Eventually(ctx, func() []finding {
		found = c.doctor(ctx, object)
		return found
	}).Should(ConsistOf(HaveField("Reason", reason)))
	return found[0]
}

// fix runs the commands of a finding in a shell on the manager cluster, and waits until it is gone.
func (c contexts) fix(ctx context.Context, f finding) {
	GinkgoHelper()
	root, err := kit.Root()
	Expect(err).NotTo(HaveOccurred())
	bin := filepath.Join(root, "bin")
	for _, command := range f.Commands {
		cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", "kubectl config use-context manager && "+command)
		cmd.Dir, cmd.Stdout, cmd.Stderr = root, GinkgoWriter, GinkgoWriter
		cmd.Env = append(os.Environ(), "KUBECONFIG="+c.file, "PATH="+bin+":"+os.Getenv("PATH"))
		Expect(cmd.Run()).To(Succeed(), command)
	}
	Eventually(ctx, func() []finding { return c.doctor(ctx, f.Object) }).Should(BeEmpty())
}

var _ = Describe("kubectl trainjob doctor in a manager cluster", func() {
	It("finds no fault with the workers of a fleet that is in order", func(ctx context.Context) {
		w := newWorld(ctx, "8", "0")
		w.manager.make(ctx, w.manager.job("llm").Obj())
		w.eventuallyRunsOn(ctx, w.worker1, "llm")
		stdout, _, code := allContexts().plugin(ctx, "doctor", "-n", "jobs", "-o", "json")
		report := unmarshal[struct {
			Findings []finding
			Passed   []string
			Unseen   []struct{ Kind string }
		}](stdout)
		Expect(code).To(BeZero())
		Expect(report.Unseen).To(BeEmpty())
		Expect(report.Passed).To(ContainElements("MultiKueue reaches its workers", "MultiKueue takes TrainJobs to its workers", "Trainer of the workers knows all fields",
			"kueue-trainer of the workers is like that of the manager cluster"))
	}, SpecTimeout(specTimeout))

	It("finds a runtime that a worker lacks, with the command that copies it", func(ctx context.Context) {
		w := newWorld(ctx, "8", "8")
		runtime := w.manager.copyRuntime(ctx, func(*trainer.TrainingRuntimeSpec) {})
		w.worker2.copyRuntime(ctx, func(*trainer.TrainingRuntimeSpec) {})
		DeferCleanup(func(ctx context.Context) {
			Expect(w.worker1.Delete(ctx, &trainer.ClusterTrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: runtime}})).To(Succeed())
		})
		w.worker2.setStopPolicy(ctx, kueue.Hold)
		w.manager.make(ctx, w.manager.job("llm").Runtime(runtime).Obj())
		c := renamed(map[string]string{"worker1": "worker1", "worker2": "worker2"})
		c.fix(ctx, c.eventuallyFinds(ctx, "WorkerRuntimeMissing", "ClusterTrainingRuntime "+runtime+" in worker cluster worker1"))
		Expect(c.doctor(ctx, "ClusterTrainingRuntime "+runtime+" in worker cluster worker2")).To(BeEmpty())
		w.eventuallyRunsOn(ctx, w.worker1, "llm")
	}, SpecTimeout(specTimeout))

	It("finds a runtime that differs in a worker", func(ctx context.Context) {
		w := newWorld(ctx, "8", "0")
		of := func(nodes int32) func(*trainer.TrainingRuntimeSpec) {
			return func(spec *trainer.TrainingRuntimeSpec) { spec.MLPolicy.NumNodes = &nodes }
		}
		runtime := w.manager.copyRuntime(ctx, of(1))
		w.worker1.copyRuntime(ctx, of(2))
		w.manager.make(ctx, w.manager.job("llm").Runtime(runtime).Obj())
		c := renamed(map[string]string{"worker1": "worker1"})
		c.fix(ctx, c.eventuallyFinds(ctx, "WorkerRuntimeDiffers", "ClusterTrainingRuntime "+runtime+" in worker cluster worker1"))
	}, SpecTimeout(specTimeout))

	It("finds a LocalQueue that a worker lacks, with the command that copies it", func(ctx context.Context) {
		w := newWorld(ctx, "8", "0")
		Expect(w.worker1.Delete(ctx, kit.MakeLocalQueue(w.worker1.namespace, "queue", ""))).To(Succeed())
		w.manager.make(ctx, w.manager.job("llm").Obj())
		c := renamed(map[string]string{"worker1": "worker1", "worker2": "worker2"})
		c.fix(ctx, c.eventuallyFinds(ctx, "WorkerLocalQueueMissing", "LocalQueue "+w.manager.namespace+"/queue in worker cluster worker1"))
		w.eventuallyRunsOn(ctx, w.worker1, "llm")
	}, SpecTimeout(specTimeout))

	It("finds a worker that Kueue does not reach", func(ctx context.Context) {
		w := newWorld(ctx, "0", "0")
		w.manager.make(ctx, &kueue.MultiKueueCluster{
			ObjectMeta: metav1.ObjectMeta{Name: w.manager.unique("nowhere")},
			Spec: kueue.MultiKueueClusterSpec{ClusterSource: kueue.ClusterSource{
				KubeConfig: &kueue.KubeConfig{LocationType: kueue.SecretLocationType, Location: "nowhere"},
			}},
		})
		Expect(allContexts().eventuallyFinds(ctx, "WorkerNotConnected", "MultiKueueCluster "+w.manager.unique("nowhere")).Problem).To(ContainSubstring("nowhere"))
	}, SpecTimeout(specTimeout))

	It("looks into no cluster that is another one", func(ctx context.Context) {
		stdout, stderr, _ := allContexts().plugin(ctx, "doctor", "-n", "jobs", "--worker-context", "worker1=manager")
		Expect(stdout + stderr).To(ContainSubstring("cluster worker1 (context manager) is the manager cluster itself"))
	}, SpecTimeout(specTimeout))
})
