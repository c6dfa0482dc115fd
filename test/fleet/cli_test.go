// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/explain"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/list"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/timeline"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/specs"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// unschedulable is a job that Kueue admits, and whose pods no node takes.
func (s *site) unschedulable(name string) *kit.TrainJobBuilder {
	return s.job(name).NodeSelector(map[string]string{"example.com/nowhere": "true"})
}

// makeStranger makes a TrainJob of this cluster that takes all the spec's GPUs.
func (s *site) makeStranger(ctx context.Context, job *kit.TrainJobBuilder) {
	s.Make(ctx, job.Obj())
	s.EventuallyPods(ctx, job.Name, 1)
}

// viewer is a user who sees all of the spec's namespace, in this cluster alone.
func (s *site) viewer(ctx context.Context) string {
	user := "viewer-" + s.Suffix
	for _, role := range []string{"view", "kueue-batch-user-role"} {
		s.Make(ctx, kit.RoleBinding(s.Namespace, role, user))
	}
	return user
}

func unmarshal[T any](text string) T {
	var into T
	Expect(json.Unmarshal([]byte(text), &into)).To(Succeed(), text)
	return into
}

// explained is what is said of TrainJob llm to who has all contexts.
func (w *sites) explained(ctx context.Context) string {
	return allContexts().says(ctx, "explain", "llm", "-n", w.manager.Namespace)
}

var _ = Describe("kubectl trainjob explain of a TrainJob in another cluster", func() {
	It("tells what its pods do there", core, func(ctx context.Context) {
		w, _ := newRunning(ctx)
		got := unmarshal[explain.Explanation](allContexts().says(ctx, "explain", "llm", "-n", w.manager.Namespace, "-o", "json"))
		Expect(got.State.Phase).To(Equal(explain.Running))
		Expect(got.State.Message).To(HavePrefix("is in worker cluster worker1, where it runs with 1 pod in queue queue"))
		Expect(got.Chain).To(ContainElements(
			And(HaveField("Kind", "Cluster"), HaveField("Name", "worker1"), HaveField("State", "Assigned")),
			And(HaveField("Kind", "Pods"), HaveField("State", "Running"))))
		Expect(got.Workers).To(ConsistOf(HaveField("Explanation.Flavors", ConsistOf(
			And(HaveField("Flavor", w.worker1.Name("gpus")), HaveField("Assigned", true))))))
	}, SpecTimeout(specTimeout))

	It("tells why its pods do not run there, and where to look", func(ctx context.Context) {
		w := newWorld(ctx, "8", "0")
		w.manager.Make(ctx, w.manager.unschedulable("llm").Obj())
		Eventually(ctx, w.explained).WithArguments(ctx).Should(And(
			MatchRegexp(`is in worker cluster worker1, where it was started .*1 pod of Job llm-node-0: Unschedulable`),
			ContainSubstring("What helps: in cluster worker1 (--context worker1): "),
			MatchRegexp(`(?m)^ +1 pod +Pending +Unschedulable: `)))
	}, SpecTimeout(specTimeout))

	It("finds the worker by the context that is given", func(ctx context.Context) {
		w, _ := newRunning(ctx)
		Expect(renamed(map[string]string{"worker1": "west"}).says(ctx, "explain", "llm", "-n", w.manager.Namespace, "--worker-context", "worker1=west")).To(And(
			ContainSubstring("where it runs with 1 pod"), ContainSubstring("In cluster worker1 (context west):")))
	}, SpecTimeout(specTimeout))

	It("names the worker, and the flag for more, without a context", func(ctx context.Context) {
		w, _ := newRunning(ctx)
		Expect(renamed(nil).says(ctx, "explain", "llm", "-n", w.manager.Namespace)).To(And(
			ContainSubstring("is in worker cluster worker1; "), ContainSubstring("give --worker-context worker1=CONTEXT"), Not(ContainSubstring("1 pod"))))
	}, SpecTimeout(specTimeout))

	It("tells what each worker that is asked lacks for it", func(ctx context.Context) {
		w := newWorld(ctx, "0", "4")
		w.manager.Make(ctx, w.manager.job("llm").Obj())
		Eventually(ctx, w.explained).WithArguments(ctx).Should(And(
			MatchRegexp(`waits for a worker cluster to admit it: .*in worker1 it waits in queue .*has no quota of it for`),
			MatchRegexp(`in worker2 it waits in queue .*has 4 GPUs at the most`),
			MatchRegexp(`(?m)^  Cluster worker1 +Nominated`), MatchRegexp(`(?m)^  Cluster worker2 +Nominated`)))
	}, SpecTimeout(specTimeout))

	It("tells that the worker that admitted it lacks its runtime", func(ctx context.Context) {
		w := newWorld(ctx, "8", "0")
		w.manager.Make(ctx, w.manager.job("llm").Runtime(w.manager.MakeRuntime(ctx, "torch-distributed")).Obj())
		Eventually(ctx, w.explained).WithArguments(ctx).Should(And(
			MatchRegexp(`in worker1 it is admitted .* and cannot be copied: .*`+w.manager.Name("torch-distributed")),
			ContainSubstring("What helps: in cluster worker1 (--context worker1): create the runtime as it is in the manager cluster")))
	}, SpecTimeout(specTimeout))

	It("is not misled by a TrainJob of the same name in another cluster", func(ctx context.Context) {
		w := newWorld(ctx, "8", "8")
		w.worker2.makeStranger(ctx, w.worker2.unschedulable("llm"))
		w.makeRunning(ctx, w.worker1, w.manager.job("llm"))
		got := unmarshal[explain.Explanation](allContexts().says(ctx, "explain", "llm", "-n", w.manager.Namespace, "-o", "json", "--worker-context", "worker1=worker2"))
		Expect(got.State.Phase).To(Equal(explain.Elsewhere))
		Expect(got.State.Message).To(And(ContainSubstring("of context worker2 is not the copy of this one"), ContainSubstring("--worker-context worker1=CONTEXT")))
	}, SpecTimeout(specTimeout))

	It("says what may not be seen there, with an exit code of its own", func(ctx context.Context) {
		w := newWorld(ctx, "8", "0")
		user := w.manager.viewer(ctx)
		w.makeRunning(ctx, w.worker1, w.manager.job("llm"))
		stdout, _, code := allContexts().plugin(ctx, "explain", "llm", "-n", w.manager.Namespace, "--as", user)
		Expect(code).To(Equal(4))
		Expect(stdout).To(ContainSubstring("is in worker cluster worker1; cluster worker1 (context worker1): you may not get TrainJobs in namespace " + w.manager.Namespace))
	}, SpecTimeout(specTimeout))
})

var _ = Describe("kubectl trainjob list of TrainJobs in other clusters", func() {
	It("has their state and flavor there", func(ctx context.Context) {
		w := newWorld(ctx, "16", "0")
		w.makeRunning(ctx, w.worker1, w.manager.job("runs"))
		w.manager.Make(ctx, w.manager.unschedulable("starts").Obj())
		Eventually(ctx, func() *trainer.TrainJob { return w.worker1.trainJob(ctx, "starts") }).ShouldNot(BeNil())
		// All the quota there is: it must not be first.
		w.manager.Make(ctx, w.manager.job("waits").GPUs("64").Obj())
		row := func(name, reason string, phase explain.Phase, cluster string, flavors ...string) OmegaMatcher {
			return And(HaveField("Name", name), HaveField("Phase", phase), HaveField("Reason", reason), HaveField("Cluster", cluster), HaveField("Flavors", flavors))
		}
		Eventually(ctx, func() []list.TrainJob {
			return unmarshal[list.List](allContexts().says(ctx, "list", "-n", w.manager.Namespace, "-o", "json")).TrainJobs
		}).Should(ConsistOf(
			row("runs", "Running", explain.Running, "worker1", w.worker1.Name("gpus")),
			row("starts", "SelectorMismatch", explain.Starting, "worker1", w.worker1.Name("gpus")),
			And(HaveField("Name", "waits"), HaveField("Phase", explain.Waiting), HaveField("Cluster", ""))))
	}, SpecTimeout(specTimeout))

	It("names the worker, and the flag for more, without a context", func(ctx context.Context) {
		w, _ := newRunning(ctx)
		stdout, stderr, code := renamed(nil).plugin(ctx, "list", "-n", w.manager.Namespace, "-o", "wide")
		Expect(code).To(BeZero())
		Expect(stdout).To(MatchRegexp(`llm +Elsewhere +queue +<unknown> +8 .*InWorker .* worker1 `))
		Expect(stderr).To(And(ContainSubstring("what 1 TrainJob do in worker cluster worker1 is not known"), ContainSubstring("--worker-context worker1=CONTEXT")))
	}, SpecTimeout(specTimeout))

	It("goes on when a job changes in a worker", func(ctx context.Context) {
		w := newWorld(ctx, "8", "0")
		session := allContexts().Start(allContexts().command(ctx, "list", "-n", w.manager.Namespace, "--watch"))
		w.manager.Make(ctx, w.manager.job("llm").Obj())
		Eventually(ctx, session.Out.Contents).Should(MatchRegexp(`llm +Running +queue +` + w.worker1.Name("gpus")))
	}, SpecTimeout(specTimeout))
})

var _ = Describe("kubectl trainjob submit in a manager cluster", func() {
	It("stays until a worker has the job, and names it", func(ctx context.Context) {
		w := newWorld(ctx, "0", "8")
		Expect(allContexts().says(ctx, "submit", "llm", "-n", w.manager.Namespace, "--runtime", "torch-distributed",
			"--gpus-per-node", "8", "--queue", "queue", "--watch")).To(MatchRegexp(`in a worker +cluster worker2`))
		w.eventuallyRunsOn(ctx, w.worker2, "llm")
	}, SpecTimeout(specTimeout))
})

var _ = Describe("kubectl trainjob timeline of a TrainJob in another cluster", func() {
	It("has the steps of both clusters, also when its copy is gone", func(ctx context.Context) {
		w, _ := newRunning(ctx)
		of := func() timeline.Timeline {
			return unmarshal[timeline.Timeline](allContexts().says(ctx, "timeline", "llm", "-n", w.manager.Namespace, "-o", "json"))
		}
		step := func(cluster, object, text string) OmegaMatcher {
			return And(HaveField("Cluster", cluster), HaveField("Object", HavePrefix(object)), HaveField("Step", HavePrefix(text)))
		}
		var got timeline.Timeline
		// Its Started event is written after it is there.
		Eventually(ctx, func() []timeline.Step { got = of(); return got.Steps }).Should(ContainElements(
			step("", "TrainJob llm", "created it"), step("", "Workload", "QuotaReserved"), step("worker1", "Workload", "Admitted"),
			step("worker1", "TrainJob llm", "copied it"), step("worker1", "1 pod of Job llm-node-0", "started it"), step("", "TrainJob llm", "Started: ")))
		Expect(got.Worker).To(HaveValue(Equal(timeline.Worker{Cluster: "worker1"})))
		Expect(got.Spans[len(got.Spans)-1].Phase).To(Equal(timeline.Running))

		w.worker1.Finish(ctx, "llm", "succeeded")
		w.eventuallyOver(ctx, "llm", trainer.TrainJobComplete)
		w.worker1.EventuallyEmpty(ctx)
		got = of()
		Expect(got.Worker).To(HaveValue(Equal(timeline.Worker{Cluster: "worker1"})))
		// A fake pod has no kubelet, whose events would tell when it ran.
		Expect(got.Steps).To(ContainElements(step("worker1", "Workload", "Admitted"), step("worker1", "1 pod of Job llm-node-0", "made it")))
	}, SpecTimeout(specTimeout))

	It("names the worker whose steps are missing, and the flag for more, without a context", func(ctx context.Context) {
		w, _ := newRunning(ctx)
		stdout, stderr, code := renamed(nil).plugin(ctx, "timeline", "llm", "-n", w.manager.Namespace)
		Expect(code).To(BeZero())
		Expect(stdout).NotTo(ContainSubstring("pod of Job"))
		Expect(stderr).To(And(ContainSubstring("the steps in worker cluster worker1 are missing"), ContainSubstring("--worker-context worker1=CONTEXT")))
	}, SpecTimeout(specTimeout))

	It("takes no step from a TrainJob of the same name in another cluster", func(ctx context.Context) {
		w := newWorld(ctx, "8", "8")
		w.worker2.makeStranger(ctx, w.worker2.unschedulable("llm"))
		w.makeRunning(ctx, w.worker1, w.manager.job("llm"))
		stdout, stderr, code := allContexts().plugin(ctx, "timeline", "llm", "-n", w.manager.Namespace, "--worker-context", "worker1=worker2")
		Expect(code).To(BeZero())
		Expect(stdout).NotTo(ContainSubstring("pod of Job"))
		Expect(stderr).To(ContainSubstring("of context worker2 is not the copy of this one"))
	}, SpecTimeout(specTimeout))
})

var _ = Describe("kubectl trainjob logs of a TrainJob in another cluster", func() {
	// The fleet's pods have no kubelet: the error says whose log was asked for.
	ofPod := func(pod *corev1.Pod) OmegaMatcher { return ContainSubstring("node-0-0 (pod " + pod.Name + ")") }

	It("are those of its pods there", func(ctx context.Context) {
		w, pod := newRunning(ctx)
		_, stderr, code := allContexts().plugin(ctx, "logs", "llm", "-n", w.manager.Namespace)
		Expect(code).To(Equal(1))
		Expect(stderr).To(ofPod(&pod))
	}, SpecTimeout(specTimeout))

	It("are followed from the queue to the worker, and to the end", func(ctx context.Context) {
		w := newWorld(ctx, "0", "0")
		w.manager.Make(ctx, w.manager.job("llm").Obj())
		session := allContexts().Start(allContexts().command(ctx, "logs", "llm", "-n", w.manager.Namespace, "--follow"))
		Consistently(ctx, session).ShouldNot(gexec.Exit())
		w.worker2.setQuota(ctx, "8")
		pod := w.eventuallyRunsOn(ctx, w.worker2, "llm")
		Eventually(ctx, func() string { return string(session.Err.Contents()) }).Should(ofPod(&pod))
		w.worker2.Finish(ctx, "llm", "succeeded")
		Eventually(ctx, session).Should(gexec.Exit(0))
	}, SpecTimeout(specTimeout))

	It("are not to be had without a context: the error names cluster and flag", func(ctx context.Context) {
		w, _ := newRunning(ctx)
		_, stderr, code := renamed(nil).plugin(ctx, "logs", "llm", "-n", w.manager.Namespace)
		Expect(code).To(Equal(1))
		Expect(stderr).To(And(ContainSubstring("the pods of TrainJob llm are in worker cluster worker1"), ContainSubstring("--worker-context worker1=CONTEXT")))
	}, SpecTimeout(specTimeout))

	It("are not those of a TrainJob of the same name in another cluster", func(ctx context.Context) {
		w := newWorld(ctx, "8", "8")
		w.worker2.makeStranger(ctx, w.worker2.job("llm"))
		w.makeRunning(ctx, w.worker1, w.manager.job("llm"))
		_, stderr, code := allContexts().plugin(ctx, "logs", "llm", "-n", w.manager.Namespace, "--worker-context", "worker1=worker2")
		Expect(code).To(Equal(1))
		Expect(stderr).To(And(ContainSubstring("of context worker2 is not the copy of this one"), Not(ContainSubstring("node-0-0"))))
	}, SpecTimeout(specTimeout))
})

var shell = regexp.MustCompile("(?s)\n```sh\n(.*?)\n```")

var _ = Describe("docs/multikueue.md", func() {
	It("has commands that run as they stand", func(ctx context.Context) {
		blocks := shell.FindAllSubmatch(specs.Must(os.ReadFile(filepath.Join(specs.Root(), "docs", "multikueue.md"))), -1)
		Expect(blocks).NotTo(BeEmpty())
		for _, block := range blocks {
			_, stderr, code := allContexts().Run(allContexts().Shell(ctx, string(block[1])), "")
			Expect(code).To(BeZero(), "%s: %s", block[1], stderr)
		}
	}, SpecTimeout(specTimeout))
})

// finding is what the specs look at in `kubectl trainjob doctor -o json`.
type finding struct {
	Reason, Object, Problem string
	Commands                []string
}

func (c contexts) doctor(ctx context.Context, object string, args ...string) []finding {
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
	var found []finding
	Eventually(ctx, func() []finding {
		found = c.doctor(ctx, object)
		return found
	}).Should(ConsistOf(HaveField("Reason", reason)))
	return found[0]
}

// fix runs the commands of a finding in a shell on the manager cluster, and waits until it is gone.
func (c contexts) fix(ctx context.Context, f finding) {
	for _, command := range f.Commands {
		_, _, code := c.Run(c.Shell(ctx, "kubectl config use-context manager && "+command), "")
		Expect(code).To(BeZero(), command)
	}
	Eventually(ctx, func() []finding { return c.doctor(ctx, f.Object) }).Should(BeEmpty())
}

// accessFor is the Secret of a worker in the manager cluster by another name, with a token that does not last.
func (s *site) accessFor(ctx context.Context, manager *site, name string, lasts time.Duration) *corev1.Secret {
	secret := world.Found(ctx, Default, manager, &corev1.Secret{}, client.ObjectKey{Namespace: "kueue-system", Name: s.Cluster.Name})
	config := specs.Must(clientcmd.Load(secret.Data[kueue.MultiKueueConfigSecretKey]))
	token := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(lasts.Seconds()))}}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "kueue-system", Name: "multikueue"}}
	Expect(s.SubResource("token").Create(ctx, account, token)).To(Succeed())
	config.AuthInfos[config.Contexts[config.CurrentContext].AuthInfo].Token = token.Status.Token
	content := specs.Must(clientcmd.Write(*config))
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kueue-system", Name: name}, Data: map[string][]byte{kueue.MultiKueueConfigSecretKey: content}}
}

// reachedBy is a worker that Kueue gets into by a Secret.
func reachedBy(name, secret string) *kueue.MultiKueueCluster {
	return &kueue.MultiKueueCluster{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: kueue.MultiKueueClusterSpec{ClusterSource: kueue.ClusterSource{
			KubeConfig: &kueue.KubeConfig{LocationType: kueue.SecretLocationType, Location: secret},
		}},
	}
}

var _ = Describe("kubectl trainjob doctor in a manager cluster", func() {
	It("finds no fault with the workers of a fleet that is in order", core, func(ctx context.Context) {
		newRunning(ctx)
		stdout, _, code := allContexts().plugin(ctx, "doctor", "-n", "jobs", "-o", "json")
		report := unmarshal[struct {
			Findings []finding
			Passed   []string
			Unseen   []struct{ Kind string }
		}](stdout)
		Expect(code).To(BeZero())
		Expect(report.Unseen).To(BeEmpty())
		Expect(report.Passed).To(ContainElements("MultiKueue reaches its workers", "MultiKueue takes TrainJobs to its workers", "Trainer of the workers knows all fields",
			"kueue-trainer of the workers is like that of the manager cluster", "MultiKueue's tokens for its workers last", "MultiKueue has its permissions in the workers"))
	}, SpecTimeout(specTimeout))

	It("finds a runtime that a worker lacks, with the command that copies it", func(ctx context.Context) {
		w := newWorld(ctx, "8", "8")
		runtime := w.manager.MakeRuntime(ctx, "torch-distributed")
		w.worker2.MakeRuntime(ctx, "torch-distributed")
		DeferCleanup(func(ctx context.Context) {
			Expect(w.worker1.Delete(ctx, &trainer.ClusterTrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: runtime}})).To(Succeed())
		})
		w.worker2.setStopPolicy(ctx, kueue.Hold)
		w.manager.Make(ctx, w.manager.job("llm").Runtime(runtime).Obj())
		c := renamed(map[string]string{"worker1": "worker1", "worker2": "worker2"})
		c.fix(ctx, c.eventuallyFinds(ctx, "WorkerRuntimeMissing", "ClusterTrainingRuntime "+runtime+" in worker cluster worker1"))
		Expect(c.doctor(ctx, "ClusterTrainingRuntime "+runtime+" in worker cluster worker2")).To(BeEmpty())
		w.eventuallyRunsOn(ctx, w.worker1, "llm")
	}, SpecTimeout(specTimeout))

	It("finds a runtime that differs in a worker", func(ctx context.Context) {
		w := newWorld(ctx, "8", "0")
		runtime := w.manager.MakeRuntime(ctx, "torch-distributed", kit.OfNodes(1))
		w.worker1.MakeRuntime(ctx, "torch-distributed", kit.OfNodes(2))
		w.manager.Make(ctx, w.manager.job("llm").Runtime(runtime).Obj())
		c := renamed(map[string]string{"worker1": "worker1"})
		c.fix(ctx, c.eventuallyFinds(ctx, "WorkerRuntimeDiffers", "ClusterTrainingRuntime "+runtime+" in worker cluster worker1"))
	}, SpecTimeout(specTimeout))

	It("finds a LocalQueue that a worker lacks, with the command that copies it", func(ctx context.Context) {
		w := newWorld(ctx, "8", "0")
		Expect(w.worker1.Delete(ctx, kit.LocalQueue(w.worker1.Namespace, "queue", ""))).To(Succeed())
		w.manager.Make(ctx, w.manager.job("llm").Obj())
		c := renamed(map[string]string{"worker1": "worker1", "worker2": "worker2"})
		c.fix(ctx, c.eventuallyFinds(ctx, "WorkerLocalQueueMissing", "LocalQueue "+w.manager.Namespace+"/queue in worker cluster worker1"))
		w.eventuallyRunsOn(ctx, w.worker1, "llm")
	}, SpecTimeout(specTimeout))

	It("finds a worker that Kueue does not reach", func(ctx context.Context) {
		w := newWorld(ctx, "0", "0")
		w.manager.Make(ctx, reachedBy(w.manager.Name("nowhere"), "nowhere"))
		Expect(allContexts().eventuallyFinds(ctx, "WorkerNotConnected", "MultiKueueCluster "+w.manager.Name("nowhere")).Problem).To(ContainSubstring("nowhere"))
	}, SpecTimeout(specTimeout))

	It("finds what Kueue may not do in a worker, with the command that grants it", Serial, func(ctx context.Context) {
		w := newWorld(ctx, "8", "0")
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "kueue-trainer-multikueue"}}
		var complete *rbacv1.ClusterRole
		w.worker1.Change(ctx, role, func() {
			complete = role.DeepCopy()
			for i := range role.Rules {
				if slices.Contains(role.Rules[i].Resources, "trainjobs") {
					role.Rules[i].Verbs = slices.DeleteFunc(role.Rules[i].Verbs, func(verb string) bool { return verb == "delete" })
				}
			}
		})
		DeferCleanup(func(ctx context.Context) { w.worker1.Change(ctx, role, func() { role.Rules = complete.Rules }) })
		c := allContexts()
		found := c.eventuallyFinds(ctx, "WorkerRights", "ServiceAccount kueue-system/multikueue in worker cluster worker1")
		Expect(found.Problem).To(HaveSuffix("lacks permissions: delete trainjobs.trainer.kubeflow.org."))
		Expect(c.doctor(ctx, "ServiceAccount kueue-system/multikueue in worker cluster worker2")).To(BeEmpty())
		c.fix(ctx, found)
	}, SpecTimeout(specTimeout))

	It("finds a token of Kueue's that ends soon, with the commands that renew it", Serial, func(ctx context.Context) {
		w := newWorld(ctx, "0", "0")
		name := w.manager.Name("soon")
		w.manager.Make(ctx, w.worker1.accessFor(ctx, w.manager, name, time.Hour), reachedBy(name, name))
		c := renamed(map[string]string{"worker1": name})
		found := c.eventuallyFinds(ctx, "WorkerTokenExpires", "Secret kueue-system/"+name)
		Expect(found.Problem).To(HavePrefix("Its token, by which Kueue gets into worker cluster " + name + ", ends at "))
		c.fix(ctx, found)
		w.manager.EventuallyIs(ctx, &kueue.MultiKueueCluster{}, name, world.True(kueue.MultiKueueClusterActive))
	}, SpecTimeout(specTimeout))

	It("looks into no cluster that is another one", func(ctx context.Context) {
		stdout, stderr, _ := allContexts().plugin(ctx, "doctor", "-n", "jobs", "--worker-context", "worker1=manager")
		Expect(stdout + stderr).To(ContainSubstring("cluster worker1 (context manager) is the manager cluster itself"))
	}, SpecTimeout(specTimeout))
})
