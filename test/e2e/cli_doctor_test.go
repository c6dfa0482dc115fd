// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// finding is what the specs look at in `kubectl trainjob doctor -o json`.
type finding struct {
	Severity, Reason, Object, Problem, Effect string
	Commands                                  []string
}

// These specs break the installation, which only a local control plane lets them do: in ways that doctor
// knows, of each kind some. The tables of its own tests have all of them.
var _ = Describe("kubectl trainjob doctor", Label("control", "external"), Serial, func() {
	const (
		ourWebhook = "kueue-trainer-mutating-webhook-configuration"
		ofKueue    = "ConfigMap kueue-system/kueue-manager-config"
		ofManager  = "ConfigMap kueue-trainer-system/kueue-trainer-config"
		kind       = "kind: Configuration\n"
		external   = "  externalFrameworks:\n  - " + externalTrainJobs + "\n"
		inTree     = "  frameworks:\n  - trainer.kubeflow.org/trainjob\n"
	)
	var (
		w             *site
		kueueConfig   = client.ObjectKey{Namespace: "kueue-system", Name: "kueue-manager-config"}
		managerConfig = client.ObjectKey{Namespace: "kueue-trainer-system", Name: "kueue-trainer-config"}
	)

	BeforeEach(func(ctx context.Context) {
		w = newPools(ctx, "16", "16")
		w.eventuallyInOrder(ctx)
	})

	It("finds nothing on a healthy cluster, and the commands of its page work", func(ctx context.Context) {
		shell(ctx, docsCommands("docs/doctor.md")...)
		stdout := said(ctx, Default, "doctor", "-o", "wide")
		Expect(stdout).To(And(ContainSubstring("Kueue is v0.19.2."), ContainSubstring("Trainer is of generation "+trainerOf(ctx)),
			ContainSubstring("ok       feature gates are alike")))
	}, SpecTimeout(specTimeout))

	It("tells who may not look what he may not see, and not that all is in order", func(ctx context.Context) {
		stdout, _, code := plugin(ctx, "doctor", "--context", "user", "-o", "wide")
		Expect(code).To(Equal(exit.Unseen))
		Expect(stdout).To(ContainSubstring("unseen   a ResourceFlavor made as a dry run (you may not make one): 1 check\n         Kueue answers\n"))
		stdout, stderr, code := plugin(ctx, "doctor", "--as", "nobody")
		Expect(code).To(Equal(exit.Unseen), stdout)
		Expect(stdout).NotTo(ContainSubstring("In order"))
		Expect(strings.Count(stdout, "unseen   clusterqueues.kueue.x-k8s.io (you may not list them)")).To(Equal(1))
		Expect(stderr).To(ContainSubstring("run doctor as somebody who may list these kinds"))
	}, SpecTimeout(specTimeout))

	DescribeTable("finds what is broken, and its commands fix it", func(ctx context.Context, severity string, breaks func(context.Context) (object string)) {
		shell(ctx, w.eventuallyFinds(ctx, severity, CurrentSpecReport().LeafNodeText, breaks(ctx)).Commands...)
		w.eventuallyInOrder(ctx)
	},
		Entry("LocalQueueToNowhere", SpecTimeout(specTimeout), "error", func(ctx context.Context) string {
			w.Make(ctx, kit.LocalQueue(w.Namespace, "lost", w.Name("nowhere")))
			return "LocalQueue " + w.Namespace + "/lost"
		}),
		Entry("ClusterQueueStopped", SpecTimeout(specTimeout), "warning", func(ctx context.Context) string {
			w.SetStopPolicy(ctx, kit.ClusterQueue(w.Name("gpus")), kueue.HoldAndDrain)
			return "ClusterQueue " + w.Name("gpus")
		}),
		Entry("FlavorWithoutNodes", SpecTimeout(specTimeout), "warning", func(ctx context.Context) string {
			w.PatchJSON(ctx, &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: w.Name("h100")}}, `{"spec":{"nodeLabels":{"`+kit.ProductLabel+`":"H100"}}}`)
			w.eventuallyFinds(ctx, "warning", "NodesWithoutFlavor", "Node gpu-h100-0")
			return "ResourceFlavor " + w.Name("h100")
		}),
		Entry("QuotaAboveNodes", SpecTimeout(specTimeout), "warning", func(ctx context.Context) string {
			w.SetQuota(ctx, w.Name("gpus"), "10k")
			return "ResourceFlavor " + w.Name("h100")
		}),
		Entry("TaintNotTolerated", SpecTimeout(specTimeout), "error", func(ctx context.Context) string {
			w.taint(ctx, "gpu-h100-0", corev1.Taint{Key: "example.com/team", Value: "a", Effect: corev1.TaintEffectNoSchedule})
			return "ResourceFlavor " + w.Name("h100")
		}),
		Entry("TrainJobStuck", SpecTimeout(specTimeout), "warning", func(ctx context.Context) string {
			w.MakeRunning(ctx, w.Job("off").GPUs("8"), 1, onH100)
			w.Activate(ctx, "off", false)
			return "TrainJob " + w.Namespace + "/off"
		}),
		Entry("WebhookPolicy", SpecTimeout(specTimeout), "error", func(ctx context.Context) string {
			w.changeWebhook(ctx, ourWebhook, func(webhook *admissionregistrationv1.MutatingWebhook) {
				webhook.FailurePolicy = new(admissionregistrationv1.Ignore)
			})
			return "MutatingWebhookConfiguration " + ourWebhook
		}),
		Entry("PermissionsMissing", SpecTimeout(specTimeout), "error", func(ctx context.Context) string {
			binding := world.Found(ctx, Default, w, &rbacv1.RoleBinding{}, client.ObjectKey{Namespace: "kueue-trainer-system", Name: "kueue-trainer-manager-rolebinding"})
			Expect(w.Delete(ctx, binding)).To(Succeed())
			binding.ResourceVersion = ""
			DeferCleanup(func(ctx context.Context) { Expect(client.IgnoreAlreadyExists(w.Create(ctx, binding))).To(Succeed()) })
			return "Role kueue-trainer-system/kueue-trainer-manager-role"
		}),
		Entry("PolicyNotEnforced", SpecTimeout(specTimeout), "warning", func(ctx context.Context) string {
			DeferCleanup(unbindPolicies(ctx))
			return "ValidatingAdmissionPolicy kueue-trainer-jobsets"
		}),
	)

	// The first command of a finding may change the other configuration, and who starts next reads it. The restarts that
	// follow have no Deployment here, and nothing to do: it was fixed before anybody read it.
	DescribeTable("finds what is wrong in a configuration, and prints a better one", func(ctx context.Context, severity, object string, at client.ObjectKey, oldNew ...string) {
		w.restoreLater(ctx, kueueConfig, managerConfig)
		w.configure(ctx, at, oldNew...)
		found := w.eventuallyFinds(ctx, severity, CurrentSpecReport().LeafNodeText, object)
		Expect(found.Commands[1:]).To(HaveEach(ContainSubstring("rollout restart deployment")))
		shell(ctx, found.Commands[0])
		w.eventuallyInOrder(ctx)
	},
		Entry("KueueNotRestarted", SpecTimeout(specTimeout), "warning", ofKueue, kueueConfig, external, "", "  frameworks:\n", inTree),
		Entry("TrainJobListedTwice", SpecTimeout(specTimeout), "error", ofKueue, kueueConfig, "  frameworks:\n", inTree),
		Entry("TrainJobNotListed", SpecTimeout(specTimeout), "warning", ofKueue, kueueConfig, external, "", "  frameworks:\n", "  frameworks:\n  - "+jobSetFramework+"\n"),
		Entry("ManagerManaged", SpecTimeout(specTimeout), "warning", "Namespace kueue-trainer-system", kueueConfig, kind, kind+"manageJobsWithoutQueueName: true\n"),
		Entry("FeatureGatesDiffer", SpecTimeout(specTimeout), "warning", ofManager, managerConfig, kind, kind+"featureGates: {VisibilityOnDemand: true}\n"),
		Entry("SettingsDiffer", SpecTimeout(specTimeout), "warning", ofManager, managerConfig, kind, kind+"manageJobsWithoutQueueName: true\n"),
	)

	It("BothIntegrations", since(world.Trainer22), func(ctx context.Context) {
		w.restoreLater(ctx, kueueConfig, managerConfig)
		DeferCleanup(repair)
		handOver(ctx, world.Both)
		found := w.eventuallyFinds(ctx, "error", "BothIntegrations", "Kueue")
		shell(ctx, found.Commands[0])
		w.eventuallyFinds(ctx, "error", "KueueNotRestarted", ofKueue)
		// What its second command does where Kueue is a Deployment.
		control(ctx, "restart", "kueue")
		w.eventuallyInOrder(ctx)
	}, SpecTimeout(specTimeout))

	It("ClusterQueueInactive, until its flavor is made", func(ctx context.Context) {
		w.Make(ctx, kit.ClusterQueue(w.Name("more"), kit.Quota{Flavor: w.Name("missing"), GPUs: "0"}))
		found := w.eventuallyFinds(ctx, "error", "ClusterQueueInactive", "ClusterQueue "+w.Name("more"))
		Expect(found.Problem).To(ContainSubstring(w.Name("missing")))
		w.Make(ctx, w.Flavor("missing", map[string]string{kit.FamilyLabel: "hopper"}))
		w.eventuallyInOrder(ctx)
	}, SpecTimeout(specTimeout))

	It("NodesWithoutFlavor, where no ClusterQueue has GPUs of them", func(ctx context.Context) {
		w.EditQueue(ctx, w.Name("gpus"), func(cq *kueue.ClusterQueue) {
			cq.Spec.ResourceGroups[0].Flavors = cq.Spec.ResourceGroups[0].Flavors[:1]
		})
		found := w.eventuallyFinds(ctx, "warning", "NodesWithoutFlavor", "Node gpu-a100-0")
		for _, command := range found.Commands {
			stdout, _, code := runShell(ctx, command)
			Expect(code).To(BeZero())
			Expect(stdout).To(ContainSubstring(kit.A100), "the flavor that the nodes would give")
		}
		w.Make(ctx, kit.ClusterQueue(w.Name("more"), kit.Quota{Flavor: w.Name("a100"), GPUs: "8"}))
		w.eventuallyInOrder(ctx)
	}, SpecTimeout(specTimeout))

	It("NoIntegration and GatesLeft, when kueue-trainer went before its TrainJobs were handed back", since(world.Trainer22), func(ctx context.Context) {
		w.MakeGated(ctx, w.Job("waits").GPUs("32"), 1)
		stopComponent(ctx, cluster.Manager())
		w.removeWebhooks(ctx)
		w.eventuallyFinds(ctx, "error", "NoIntegration", "Deployment kueue-trainer-system/kueue-trainer-controller-manager")
		shell(ctx, w.eventuallyFinds(ctx, "error", "GatesLeft", "Namespace "+w.Namespace).Commands...)
		w.eventuallyLost(ctx, "GatesLeft")
		repair(ctx)
		w.eventuallyLost(ctx, "NoIntegration")
	}, SpecTimeout(specTimeout))

	It("WebhookMissing and WebhookWithoutEffect", func(ctx context.Context) {
		DeferCleanup(repair)
		Expect(w.Delete(ctx, &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: ourWebhook}})).To(Succeed())
		w.eventuallyFinds(ctx, "error", "WebhookMissing", "MutatingWebhookConfiguration "+ourWebhook)
		repair(ctx)
		w.eventuallyInOrder(ctx)

		// The validating one refuses what is not suspended.
		validating := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "kueue-trainer-validating-webhook-configuration"}}
		w.changeWebhook(ctx, ourWebhook, func(webhook *admissionregistrationv1.MutatingWebhook) {
			webhook.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "never", Expression: "false"}}
		})
		Expect(w.Delete(ctx, validating)).To(Succeed())
		w.eventuallyFinds(ctx, "error", "WebhookWithoutEffect", "MutatingWebhookConfiguration "+ourWebhook)
	}, SpecTimeout(specTimeout))

	DescribeTable("WebhookSilent, while a part is away", func(ctx context.Context, component, object string) {
		start := stopComponent(ctx, component)
		w.eventuallyFinds(ctx, "error", "WebhookSilent", object)
		if component == cluster.Manager() {
			w.eventuallyFinds(ctx, "error", "ManagerNotRunning", "Deployment kueue-trainer-system/kueue-trainer-controller-manager")
		}
		start(ctx)
		w.eventuallyInOrder(ctx)
	},
		Entry("Kueue", "kueue", "MutatingWebhookConfiguration kueue-mutating-webhook-configuration", SpecTimeout(specTimeout)),
		Entry("JobSet", "jobset", "MutatingWebhookConfiguration jobset-mutating-webhook-configuration", SpecTimeout(specTimeout)),
		Entry("Trainer", "trainer", "MutatingWebhookConfiguration defaulter.trainer.kubeflow.org", since(world.Trainer22), SpecTimeout(specTimeout)),
		Entry("kueue-trainer", "kueue-trainer", "MutatingWebhookConfiguration "+ourWebhook, SpecTimeout(specTimeout)),
	)

	It("TrainerGeneration", core, func(ctx context.Context) {
		field := map[bool]string{true: "runtimePatches", false: "podTemplateOverrides"}[trainerOf(ctx) >= world.Trainer22]
		w.hideField(ctx, field)
		w.eventuallyFinds(ctx, "error", "TrainerGeneration", "CustomResourceDefinition "+trainJobCRD)
		w.showField(ctx)
		w.eventuallyInOrder(ctx)
	}, SpecTimeout(specTimeout))
})

// findings returns what doctor finds, and checks its exit code, which a check that could not be made makes another.
func (w *site) findings(ctx context.Context, g Gomega) []finding {
	stdout, stderr, code := plugin(ctx, "doctor", "-n", w.Namespace, "-o", "json")
	var report struct {
		Errors, Warnings int
		Findings         []finding
	}
	g.Expect(json.Unmarshal([]byte(stdout), &report)).To(Succeed(), stderr)
	switch {
	case report.Errors > 0:
		g.Expect(code).To(Equal(exit.Findings))
	case report.Warnings > 0:
		g.Expect(code).To(Equal(exit.Warnings))
	default:
		g.Expect(code).To(BeZero())
	}
	return slices.DeleteFunc(report.Findings, func(f finding) bool { return f.Severity == "info" })
}

func (w *site) eventuallyInOrder(ctx context.Context) {
	Eventually(ctx, func(g Gomega) []finding { return w.findings(ctx, g) }).Should(BeEmpty())
}

// eventuallyFinds waits for a finding and gives it.
func (w *site) eventuallyFinds(ctx context.Context, severity, reason, object string) finding {
	var found []finding
	Eventually(ctx, func(g Gomega) []finding { return w.findings(ctx, g) }).
		Should(ContainElement(And(HaveField("Severity", severity), HaveField("Reason", reason), HaveField("Object", object)), &found))
	Expect(found[0]).To(And(HaveField("Problem", Not(BeEmpty())), HaveField("Effect", Not(BeEmpty())), HaveField("Commands", Not(BeEmpty()))))
	return found[0]
}

func (w *site) eventuallyLost(ctx context.Context, reason string) {
	Eventually(ctx, func(g Gomega) []finding { return w.findings(ctx, g) }).ShouldNot(ContainElement(HaveField("Reason", reason)))
}

// taint puts a taint on a node until the spec is over.
func (w *site) taint(ctx context.Context, name string, taint corev1.Taint) {
	node := kit.Node(name, nil)
	w.Change(ctx, node, func() { node.Spec.Taints = append(node.Spec.Taints, taint) })
	DeferCleanup(func(ctx context.Context) {
		w.Change(ctx, node, func() {
			node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == taint.Key })
		})
	})
}

// changeWebhook changes the only webhook of a configuration, until the spec's end.
func (w *site) changeWebhook(ctx context.Context, configuration string, change func(*admissionregistrationv1.MutatingWebhook)) {
	found := get(ctx, w, &admissionregistrationv1.MutatingWebhookConfiguration{}, configuration)
	before := found.Webhooks[0].DeepCopy()
	DeferCleanup(func(ctx context.Context) { w.Change(ctx, found, func() { before.DeepCopyInto(&found.Webhooks[0]) }) })
	w.Change(ctx, found, func() { change(&found.Webhooks[0]) })
}

// stopComponent stops a process, until start or the spec's end.
func stopComponent(ctx context.Context, component string) (start func(context.Context)) {
	start = func(ctx context.Context) { control(ctx, "start", component) }
	DeferCleanup(start)
	control(ctx, "stop", component)
	return start
}

// restoreLater puts ConfigMaps back as they are now when the spec ends.
func (w *site) restoreLater(ctx context.Context, all ...client.ObjectKey) {
	for _, at := range all {
		config := world.Found(ctx, Default, w, &corev1.ConfigMap{}, at)
		config.ResourceVersion = ""
		DeferCleanup(func(ctx context.Context) { Expect(w.Update(ctx, config)).To(Succeed()) })
	}
}

// configure replaces texts in a configuration, which Kueue and the manager read at their start; Kueue's settings at once.
func (w *site) configure(ctx context.Context, at client.ObjectKey, oldNew ...string) {
	config := world.Found(ctx, Default, w, &corev1.ConfigMap{}, at)
	for key, content := range config.Data {
		config.Data[key] = strings.NewReplacer(oldNew...).Replace(content)
		Expect(config.Data[key]).NotTo(Equal(content))
	}
	Expect(w.Update(ctx, config)).To(Succeed())
}
