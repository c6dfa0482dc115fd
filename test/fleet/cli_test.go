// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
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
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/explain"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/list"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/timeline"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/pages"
	"github.com/kueue-trainer/kueue-trainer/test/kit/specs"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// unschedulable is a job that Kueue admits, and whose pods no node takes.
func (s *site) unschedulable(name string) *kit.TrainJobBuilder {
	return s.job(name).NodeSelector(map[string]string{"example.com/nowhere": "true"})
}

func unmarshal[T any](text string) T {
	var into T
	Expect(json.Unmarshal([]byte(text), &into)).To(Succeed(), text)
	return into
}

// One TrainJob serves all specs, of which the last ends it.
var _ = Describe("kubectl trainjob about a TrainJob in another cluster", Ordered, ContinueOnFailure, func() {
	var w *sites
	var pod corev1.Pod

	BeforeAll(func(ctx context.Context) { w, pod = newRunning(ctx) }, NodeTimeout(specTimeout))

	It("explains what its pods do there", core, func(ctx context.Context) {
		got := unmarshal[explain.Explanation](allContexts().says(ctx, "explain", "llm", "-n", w.manager.Namespace, "-o", "json"))
		Expect(got.State.Phase).To(Equal(explain.Running))
		Expect(got.State.Message).To(HavePrefix("is in worker cluster worker1, where it runs with 1 pod in queue queue"))
		Expect(got.Chain).To(ContainElements(
			And(HaveField("Kind", "Cluster"), HaveField("Name", "worker1"), HaveField("State", "Assigned")),
			And(HaveField("Kind", "Pods"), HaveField("State", "Running"))))
		Expect(got.Workers).To(ConsistOf(HaveField("Explanation.Flavors", ConsistOf(
			And(HaveField("Flavor", w.worker1.Name("gpus")), HaveField("Assigned", true))))))
	}, SpecTimeout(specTimeout))

	It("finds the worker by the context that is given", func(ctx context.Context) {
		Expect(renamed(map[string]string{"worker1": "west"}).says(ctx, "explain", "llm", "-n", w.manager.Namespace, "--worker-context", "worker1=west")).To(And(
			ContainSubstring("where it runs with 1 pod"), ContainSubstring("In cluster worker1 (context west):")))
	}, SpecTimeout(specTimeout))

	DescribeTable("names the worker, and the flag for more, without a context", func(ctx context.Context, command string, code int, told string) {
		stdout, stderr, got := renamed(nil).plugin(ctx, append(strings.Fields(command), "-n", w.manager.Namespace)...)
		Expect(got).To(Equal(code))
		Expect(stdout + stderr).To(And(MatchRegexp(told), ContainSubstring("--worker-context worker1=CONTEXT"), Not(ContainSubstring("1 pod"))))
	},
		Entry("in explain", "explain llm", 0, "is in worker cluster worker1; ", SpecTimeout(specTimeout)),
		Entry("in list", "list -o wide", 0, `(?s)llm +Elsewhere +queue +<unknown> +8 .*InWorker .* worker1 .*what 1 TrainJob do in worker cluster worker1 is not known`, SpecTimeout(specTimeout)),
		Entry("in timeline", "timeline llm", 0, "the steps in worker cluster worker1 are missing", SpecTimeout(specTimeout)),
		Entry("in logs", "logs llm", 1, "the pods of TrainJob llm are in worker cluster worker1", SpecTimeout(specTimeout)),
	)

	It("says what may not be seen there, with an exit code of its own", func(ctx context.Context) {
		user := "viewer-" + w.manager.Suffix
		for _, role := range []string{"view", "kueue-batch-user-role"} {
			w.manager.Make(ctx, kit.RoleBinding(w.manager.Namespace, role, user))
		}
		Eventually(ctx, func(g Gomega) {
			stdout, _, code := allContexts().plugin(ctx, "explain", "llm", "-n", w.manager.Namespace, "--as", user)
			g.Expect(code).To(Equal(4))
			g.Expect(stdout).To(ContainSubstring("is in worker cluster worker1; cluster worker1 (context worker1): you may not get TrainJobs in namespace " + w.manager.Namespace))
		}).Should(Succeed())
	}, SpecTimeout(specTimeout))

	It("asks for the logs of its pods there", func(ctx context.Context) {
		_, stderr, code := allContexts().plugin(ctx, "logs", "llm", "-n", w.manager.Namespace)
		Expect(code).To(Equal(1))
		Expect(stderr).To(ofPod(&pod))
	}, SpecTimeout(specTimeout))

	It("has the steps of both clusters in its timeline, also when its copy is gone", func(ctx context.Context) {
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

		w.ends(ctx, w.worker1, "llm")
		w.worker1.EventuallyEmpty(ctx)
		got = of()
		Expect(got.Worker).To(HaveValue(Equal(timeline.Worker{Cluster: "worker1"})))
		// A fake pod has no kubelet, whose events would tell when it ran.
		Expect(got.Steps).To(ContainElements(step("worker1", "Workload", "Admitted"), step("worker1", "1 pod of Job llm-node-0", "made it")))
	}, SpecTimeout(specTimeout))
})

// ofPod is an error that says whose log was asked for: the fleet's pods have no kubelet.
func ofPod(pod *corev1.Pod) OmegaMatcher { return ContainSubstring("node-0-0 (pod " + pod.Name + ")") }

var _ = Describe("kubectl trainjob in a manager cluster", func() {
	It("explains what each worker that is asked lacks for a TrainJob", func(ctx context.Context) {
		w := newWorld(ctx, "0", "4")
		w.manager.Make(ctx, w.manager.job("llm").Obj())
		Eventually(ctx, func() string { return allContexts().says(ctx, "explain", "llm", "-n", w.manager.Namespace) }).Should(And(
			MatchRegexp(`waits for a worker cluster to admit it: .*in worker1 it waits in queue .*has no quota of it for`),
			MatchRegexp(`in worker2 it waits in queue .*has 4 GPUs at the most`),
			MatchRegexp(`(?m)^  Cluster worker1 +Nominated`), MatchRegexp(`(?m)^  Cluster worker2 +Nominated`)))
	}, SpecTimeout(specTimeout))

	It("is not misled by a TrainJob of the same name in another cluster", func(ctx context.Context) {
		w := newWorld(ctx, "8", "8")
		w.worker2.Make(ctx, w.worker2.unschedulable("llm").Obj())
		w.worker2.EventuallyPods(ctx, "llm", 1)
		w.makeRunning(ctx, w.worker1, w.manager.job("llm"))
		for command, code := range map[string]int{"explain": 0, "timeline": 0, "logs": 1} {
			stdout, stderr, got := allContexts().plugin(ctx, command, "llm", "-n", w.manager.Namespace, "--worker-context", "worker1=worker2")
			Expect(got).To(Equal(code), command)
			Expect(stdout+stderr).To(And(ContainSubstring("of context worker2 is not the copy of this one"), Not(ContainSubstring("llm-node-0"))), command)
		}
	}, SpecTimeout(specTimeout))

	It("lists the state of TrainJobs in workers, and their flavors there", func(ctx context.Context) {
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

	It("lists again when a job changes in a worker", func(ctx context.Context) {
		w := newWorld(ctx, "8", "0")
		session := allContexts().Start(allContexts().command(ctx, "list", "-n", w.manager.Namespace, "--watch"))
		w.manager.Make(ctx, w.manager.job("llm").Obj())
		Eventually(ctx, session.Out.Contents).Should(MatchRegexp(`llm +Running +queue +` + w.worker1.Name("gpus")))
	}, SpecTimeout(specTimeout))

	It("submits a TrainJob, stays until a worker has it, and names that", func(ctx context.Context) {
		w := newWorld(ctx, "0", "8")
		Expect(allContexts().says(ctx, "submit", "llm", "-n", w.manager.Namespace, "--runtime", "torch-distributed",
			"--gpus-per-node", "8", "--queue", "queue", "--watch")).To(MatchRegexp(`in a worker .*cluster worker2`))
		w.eventuallyRunsOn(ctx, w.worker2, "llm")
	}, SpecTimeout(specTimeout))

	It("follows logs from the queue to the worker, and to the end", func(ctx context.Context) {
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
})

var _ = It("docs/multikueue.md has commands that run as they stand", func(ctx context.Context) {
	steps := pages.Steps(string(specs.Must(os.ReadFile(filepath.Join(specs.Root(), "docs/multikueue.md")))))
	Expect(steps).NotTo(BeEmpty())
	for _, step := range steps {
		_, stderr, code := allContexts().Run(allContexts().Shell(ctx, step.Commands), "")
		Expect(code).To(BeZero(), "%s: %s", step.Commands, stderr)
	}
}, SpecTimeout(specTimeout))

// finding is what the specs look at in `kubectl trainjob doctor -o json`.
type finding struct {
	Reason, Object, Problem string
	Commands                []string
}

func (c contexts) doctor(ctx context.Context, object string) []finding {
	stdout, _, _ := c.plugin(ctx, "doctor", "-n", "jobs", "-o", "json")
	all := unmarshal[struct{ Findings []finding }](stdout).Findings
	return slices.DeleteFunc(all, func(f finding) bool { return f.Object != object })
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
	token := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(lasts.Seconds()))}}
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

	DescribeTable("finds what a worker lacks for a TrainJob, with the commands that bring it", func(ctx context.Context, breaks func(context.Context, *sites) (object string)) {
		w := newWorld(ctx, "8", "0")
		object := breaks(ctx, w)
		c := renamed(map[string]string{"worker1": "worker1", "worker2": "worker2"})
		c.fix(ctx, c.eventuallyFinds(ctx, CurrentSpecReport().LeafNodeText, object+" in worker cluster worker1"))
		Expect(c.doctor(ctx, object+" in worker cluster worker2")).To(BeEmpty())
		w.eventuallyRunsOn(ctx, w.worker1, "llm")
	},
		Entry("WorkerRuntimeMissing", SpecTimeout(specTimeout), func(ctx context.Context, w *sites) string {
			runtime := w.manager.MakeRuntime(ctx, "torch-distributed")
			w.worker1.Own(&trainer.ClusterTrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: runtime}})
			w.worker2.MakeRuntime(ctx, "torch-distributed")
			w.manager.Make(ctx, w.manager.job("llm").Runtime(runtime).Obj())
			return "ClusterTrainingRuntime " + runtime
		}),
		Entry("WorkerRuntimeDiffers", SpecTimeout(specTimeout), func(ctx context.Context, w *sites) string {
			runtime := w.manager.MakeRuntime(ctx, "torch-distributed", kit.OfNodes(1))
			w.worker1.MakeRuntime(ctx, "torch-distributed", kit.OfNodes(2))
			w.worker2.MakeRuntime(ctx, "torch-distributed", kit.OfNodes(1))
			w.manager.Make(ctx, w.manager.job("llm").Runtime(runtime).Obj())
			return "ClusterTrainingRuntime " + runtime
		}),
		Entry("WorkerLocalQueueMissing", SpecTimeout(specTimeout), func(ctx context.Context, w *sites) string {
			Expect(w.worker1.Delete(ctx, kit.LocalQueue(w.worker1.Namespace, "queue", ""))).To(Succeed())
			w.manager.Make(ctx, w.manager.job("llm").Obj())
			return "LocalQueue " + w.manager.Namespace + "/queue"
		}),
	)

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
})
