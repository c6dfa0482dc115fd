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
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
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

// These specs break the installation in every way that doctor knows, which only a local
// control plane lets them do.
var _ = Describe("kubectl trainjob doctor", Label("control"), Serial, func() {
	var w *site

	BeforeEach(func(ctx context.Context) {
		externalOnly("the specs of this group break the installation")
		localOnly("the specs of this group break the installation")
		w = newPools(ctx, "16", "16")
		w.eventuallyInOrder(ctx)
	})

	It("finds nothing on a healthy cluster, and the commands of its page work", func(ctx context.Context) {
		shell(ctx, docsCommands("docs/doctor.md")...)
		stdout := said(ctx, Default, "doctor", "-o", "wide")
		Expect(stdout).To(And(ContainSubstring("Kueue is v0.19.2."), ContainSubstring("Trainer is of generation "+trainerOf(ctx)),
			ContainSubstring("ok       feature gates are alike")))
	}, SpecTimeout(specTimeout))

	It("tells a user what he may not see", func(ctx context.Context) {
		stdout, _, code := plugin(ctx, "doctor", "--context", "user", "-o", "wide")
		Expect(code).To(Equal(exit.Unseen))
		Expect(stdout).To(ContainSubstring("unseen   a ResourceFlavor made as a dry run (you may not make one): 1 check\n         Kueue answers\n"))
	}, SpecTimeout(specTimeout))

	It("does not say that all is in order to whom may not look", func(ctx context.Context) {
		stdout, stderr, code := plugin(ctx, "doctor", "--as", "nobody")
		Expect(code).To(Equal(exit.Unseen), stdout)
		Expect(stdout).NotTo(ContainSubstring("In order"))
		Expect(strings.Count(stdout, "unseen   clusterqueues.kueue.x-k8s.io (you may not list them)")).To(Equal(1))
		Expect(stderr).To(ContainSubstring("run doctor as somebody who may list these kinds"))
	}, SpecTimeout(specTimeout))

	Describe("queues and pools", func() {
		It("LocalQueueToNowhere", func(ctx context.Context) {
			w.Make(ctx, kit.LocalQueue(w.Namespace, "lost", w.Name("nowhere")))
			w.fix(ctx, w.eventuallyFinds(ctx, "error", "LocalQueueToNowhere", "LocalQueue "+w.Namespace+"/lost"))
		}, SpecTimeout(specTimeout))

		It("ClusterQueueStopped", func(ctx context.Context) {
			w.SetStopPolicy(ctx, kit.ClusterQueue(w.Name("gpus")), kueue.HoldAndDrain)
			w.fix(ctx, w.eventuallyFinds(ctx, "warning", "ClusterQueueStopped", "ClusterQueue "+w.Name("gpus")))
		}, SpecTimeout(specTimeout))

		It("LocalQueueStopped", func(ctx context.Context) {
			w.SetStopPolicy(ctx, w.LocalQueue(), kueue.Hold)
			w.fix(ctx, w.eventuallyFinds(ctx, "warning", "LocalQueueStopped", "LocalQueue "+w.Namespace+"/queue"))
		}, SpecTimeout(specTimeout))

		It("ClusterQueueInactive, until its flavor is made", func(ctx context.Context) {
			w.Make(ctx, kit.ClusterQueue(w.Name("more"), kit.Quota{Flavor: w.Name("missing"), GPUs: "0"}))
			found := w.eventuallyFinds(ctx, "error", "ClusterQueueInactive", "ClusterQueue "+w.Name("more"))
			Expect(found.Problem).To(ContainSubstring(w.Name("missing")))
			w.Make(ctx, w.Flavor("missing", map[string]string{kit.FamilyLabel: "hopper"}))
			w.eventuallyInOrder(ctx)
		}, SpecTimeout(specTimeout))

		It("FlavorWithoutNodes and NodesWithoutFlavor, for a misspelled label", func(ctx context.Context) {
			w.PatchJSON(ctx, &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: w.Name("h100")}}, `{"spec":{"nodeLabels":{"`+kit.ProductLabel+`":"H100"}}}`)
			w.eventuallyFinds(ctx, "warning", "NodesWithoutFlavor", "Node gpu-h100-0")
			w.fix(ctx, w.eventuallyFinds(ctx, "warning", "FlavorWithoutNodes", "ResourceFlavor "+w.Name("h100")))
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

		It("QuotaAboveNodes", func(ctx context.Context) {
			w.SetQuota(ctx, w.Name("gpus"), "10k")
			w.fix(ctx, w.eventuallyFinds(ctx, "warning", "QuotaAboveNodes", "ResourceFlavor "+w.Name("h100")))
		}, SpecTimeout(specTimeout))

		It("TaintNotTolerated", func(ctx context.Context) {
			w.taint(ctx, "gpu-h100-0", corev1.Taint{Key: "example.com/team", Value: "a", Effect: corev1.TaintEffectNoSchedule})
			w.fix(ctx, w.eventuallyFinds(ctx, "error", "TaintNotTolerated", "ResourceFlavor "+w.Name("h100")))
		}, SpecTimeout(specTimeout))
	})

	Describe("TrainJobs", func() {
		It("TrainJobStuck, when its Workload was deactivated", func(ctx context.Context) {
			w.MakeRunning(ctx, w.Job("off").GPUs("8"), 1, onH100)
			w.Activate(ctx, "off", false)
			w.fix(ctx, w.eventuallyFinds(ctx, "warning", "TrainJobStuck", "TrainJob "+w.Namespace+"/off"))
		}, SpecTimeout(specTimeout))

		It("WorkloadOrphaned", func(ctx context.Context) {
			w.makeWorkload(ctx, &kueue.Workload{
				ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "trainjob-restored-00000"},
				Spec: kueue.WorkloadSpec{QueueName: "queue", PodSets: []kueue.PodSet{{
					Name: "node", Count: 1, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
						RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "node"}},
					}},
				}}},
			})
			// Kueue admits it, whoever it belongs to.
			w.fix(ctx, w.eventuallyFinds(ctx, "error", "WorkloadOrphaned", "Workload "+w.Namespace+"/trainjob-restored-00000"))
		}, SpecTimeout(specTimeout))

		It("CountedTwice", func(ctx context.Context) {
			w.MakeRunning(ctx, w.Job("twice").GPUs("8"), 1, onH100)
			wl := w.Workload(ctx, "twice")
			js := get(ctx, w, &jobsetapi.JobSet{}, "twice")
			w.makeWorkload(ctx, &kueue.Workload{
				ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "jobset-twice", OwnerReferences: []metav1.OwnerReference{
					*metav1.NewControllerRef(js, jobsetapi.SchemeGroupVersion.WithKind("JobSet")),
				}},
				Spec: kueue.WorkloadSpec{PodSets: wl.Spec.PodSets, Active: ptr.To(false)},
			})
			w.fix(ctx, w.eventuallyFinds(ctx, "error", "CountedTwice", "Workload "+w.Namespace+"/jobset-twice"))
		}, SpecTimeout(specTimeout))

		It("NoIntegration and GatesLeft, when kueue-trainer went before its TrainJobs were handed back", since(world.Trainer22), func(ctx context.Context) {
			w.MakeGated(ctx, w.Job("waits").GPUs("32"), 1)
			w.stopManager(ctx)
			w.removeWebhooks(ctx)
			w.eventuallyFinds(ctx, "error", "NoIntegration", "Deployment kueue-trainer-system/kueue-trainer-controller-manager")
			shell(ctx, w.eventuallyFinds(ctx, "error", "GatesLeft", "Namespace "+w.Namespace).Commands...)
			w.eventuallyLost(ctx, "GatesLeft")
			Expect(cluster.Repair(ctx, GinkgoWriter)).To(Succeed())
			w.eventuallyLost(ctx, "NoIntegration")
		}, SpecTimeout(specTimeout))
	})

	Describe("webhooks", func() {
		const (
			ours       = "kueue-trainer-mutating-webhook-configuration"
			ourWebhook = "MutatingWebhookConfiguration " + ours
		)

		It("WebhookPolicy", func(ctx context.Context) {
			w.changeWebhook(ctx, ours, func(webhook *admissionregistrationv1.MutatingWebhook) {
				webhook.FailurePolicy = ptr.To(admissionregistrationv1.Ignore)
			})
			w.fix(ctx, w.eventuallyFinds(ctx, "error", "WebhookPolicy", ourWebhook))
		}, SpecTimeout(specTimeout))

		It("WebhookOrder", func(ctx context.Context) {
			w.Make(ctx, w.policyAfterOurs())
			w.changeWebhook(ctx, ours, func(webhook *admissionregistrationv1.MutatingWebhook) {
				webhook.ReinvocationPolicy = ptr.To(admissionregistrationv1.NeverReinvocationPolicy)
			})
			w.fix(ctx, w.eventuallyFinds(ctx, "warning", "WebhookOrder", ourWebhook))
		}, SpecTimeout(specTimeout))

		It("WebhookScope", func(ctx context.Context) {
			undo := w.changeWebhook(ctx, ours, func(webhook *admissionregistrationv1.MutatingWebhook) {
				webhook.Rules[0].Operations = []admissionregistrationv1.OperationType{admissionregistrationv1.Create}
			})
			w.eventuallyFinds(ctx, "error", "WebhookScope", ourWebhook)
			w.undo(ctx, undo)
		}, SpecTimeout(specTimeout))

		It("WebhookMissing and WebhookWithoutEffect", func(ctx context.Context) {
			DeferCleanup(func(ctx context.Context) { Expect(cluster.Repair(ctx, GinkgoWriter)).To(Succeed()) })
			Expect(w.Delete(ctx, &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: ours}})).To(Succeed())
			w.eventuallyFinds(ctx, "error", "WebhookMissing", ourWebhook)
			w.eventuallyFinds(ctx, "error", "WebhookWithoutEffect", ourWebhook)
			Expect(cluster.Repair(ctx, GinkgoWriter)).To(Succeed())
			w.eventuallyInOrder(ctx)
		}, SpecTimeout(specTimeout))

		It("WebhookService", func(ctx context.Context) {
			undo := w.changeWebhook(ctx, ours, func(webhook *admissionregistrationv1.MutatingWebhook) {
				webhook.ClientConfig.URL = nil
				webhook.ClientConfig.Service = &admissionregistrationv1.ServiceReference{Namespace: "kueue-trainer-system", Name: "kueue-trainer-webhook-service"}
			})
			w.eventuallyFinds(ctx, "error", "WebhookService", ourWebhook)
			w.eventuallyFinds(ctx, "error", "WebhookSilent", ourWebhook)
			w.undo(ctx, undo)
		}, SpecTimeout(specTimeout))

		It("WebhookSilent, when the authority is not the one of the certificate", func(ctx context.Context) {
			undo := w.changeWebhook(ctx, ours, func(webhook *admissionregistrationv1.MutatingWebhook) { webhook.ClientConfig.CABundle = nil })
			Expect(w.eventuallyFinds(ctx, "error", "WebhookSilent", ourWebhook).Problem).To(ContainSubstring("x509"))
			w.undo(ctx, undo)
		}, SpecTimeout(specTimeout))

		DescribeTable("WebhookSilent, while a part is away", func(ctx context.Context, component, object string) {
			start := stopComponent(ctx, component)
			w.eventuallyFinds(ctx, "error", "WebhookSilent", object)
			w.undo(ctx, start)
		},
			Entry("Kueue", "kueue", "MutatingWebhookConfiguration kueue-mutating-webhook-configuration", SpecTimeout(specTimeout)),
			Entry("JobSet", "jobset", "MutatingWebhookConfiguration jobset-mutating-webhook-configuration", SpecTimeout(specTimeout)),
			Entry("Trainer", "trainer", "MutatingWebhookConfiguration defaulter.trainer.kubeflow.org", since(world.Trainer22), SpecTimeout(specTimeout)),
			Entry("kueue-trainer", "kueue-trainer", ourWebhook, SpecTimeout(specTimeout)),
		)

		It("ManagerNotRunning", func(ctx context.Context) {
			start := stopComponent(ctx, cluster.Manager())
			w.eventuallyFinds(ctx, "error", "ManagerNotRunning", "Deployment kueue-trainer-system/kueue-trainer-controller-manager")
			w.undo(ctx, start)
		}, SpecTimeout(specTimeout))

		It("PermissionsMissing", func(ctx context.Context) {
			role := get(ctx, w, &rbacv1.ClusterRole{}, "kueue-trainer-manager-role")
			before := role.DeepCopy()
			DeferCleanup(func(ctx context.Context) {
				before.ResourceVersion = ""
				Expect(w.Update(ctx, before)).To(Succeed())
			})
			role.Rules = slices.DeleteFunc(role.Rules, func(rule rbacv1.PolicyRule) bool { return slices.Contains(rule.Resources, "jobsets") })
			Expect(w.Update(ctx, role)).To(Succeed())
			w.fix(ctx, w.eventuallyFinds(ctx, "error", "PermissionsMissing", "ClusterRole kueue-trainer-manager-role"))
		}, SpecTimeout(specTimeout))

		It("PermissionsMissing, of a RoleBinding", func(ctx context.Context) {
			DeferCleanup(func(ctx context.Context) { Expect(cluster.Repair(ctx, GinkgoWriter)).To(Succeed()) })
			binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "kueue-trainer-system", Name: "kueue-trainer-manager-rolebinding"}}
			Expect(w.Delete(ctx, binding)).To(Succeed())
			w.fix(ctx, w.eventuallyFinds(ctx, "error", "PermissionsMissing", "Role kueue-trainer-system/kueue-trainer-manager-role"))
		}, SpecTimeout(specTimeout))

		It("PolicyNotEnforced", func(ctx context.Context) {
			DeferCleanup(unbindPolicies(ctx))
			w.fix(ctx, w.eventuallyFinds(ctx, "warning", "PolicyNotEnforced", "ValidatingAdmissionPolicy kueue-trainer-jobsets"))
		}, SpecTimeout(specTimeout))

		It("TrainerGeneration", core, func(ctx context.Context) {
			field := map[bool]string{true: "runtimePatches", false: "podTemplateOverrides"}[trainerOf(ctx) >= world.Trainer22]
			w.hideField(ctx, field)
			w.eventuallyFinds(ctx, "error", "TrainerGeneration", "CustomResourceDefinition "+trainJobCRD)
			w.undo(ctx, w.showField)
		}, SpecTimeout(specTimeout))
	})

	Describe("configurations", func() {
		const (
			kueueConfig   = "ConfigMap kueue-system/kueue-manager-config"
			managerConfig = "ConfigMap kueue-trainer-system/kueue-trainer-config"
			external      = "  externalFrameworks:\n  - TrainJob.v1alpha1.trainer.kubeflow.org\n"
			inTree        = "  frameworks:\n  - trainer.kubeflow.org/trainjob\n"
		)
		BeforeEach(func(ctx context.Context) {
			// The command of a finding may change the other one, and who starts next reads it.
			w.restoreLater(ctx, "kueue-system", "kueue-manager-config")
			w.restoreLater(ctx, "kueue-trainer-system", "kueue-trainer-config")
		})

		It("BothIntegrations", since(world.Trainer22), func(ctx context.Context) {
			DeferCleanup(func(ctx context.Context) { Expect(cluster.Repair(ctx, GinkgoWriter)).To(Succeed()) })
			Expect(cluster.HandOver(ctx, world.Both, GinkgoWriter)).To(Succeed())
			found := w.eventuallyFinds(ctx, "error", "BothIntegrations", "Kueue")
			shell(ctx, found.Commands[0])
			w.eventuallyFinds(ctx, "error", "KueueNotRestarted", kueueConfig)
			// What its second command does where Kueue is a Deployment.
			Expect(cluster.Control(ctx, "restart", "kueue", GinkgoWriter)).To(Succeed())
			w.eventuallyInOrder(ctx)
		}, SpecTimeout(specTimeout))

		It("KueueNotRestarted", func(ctx context.Context) {
			w.configure(ctx, "kueue-system", "kueue-manager-config", external, "", "  frameworks:\n", inTree)
			w.fixConfig(ctx, w.eventuallyFinds(ctx, "warning", "KueueNotRestarted", kueueConfig))
		}, SpecTimeout(specTimeout))

		It("TrainJobListedTwice", func(ctx context.Context) {
			w.configure(ctx, "kueue-system", "kueue-manager-config", "  frameworks:\n", inTree)
			w.fixConfig(ctx, w.eventuallyFinds(ctx, "error", "TrainJobListedTwice", kueueConfig))
		}, SpecTimeout(specTimeout))

		It("TrainJobNotListed, worse with a default queue", func(ctx context.Context) {
			w.configure(ctx, "kueue-system", "kueue-manager-config", external, "", "  frameworks:\n", "  frameworks:\n  - "+jobSetFramework+"\n")
			w.eventuallyFinds(ctx, "warning", "TrainJobNotListed", kueueConfig)
			w.Make(ctx, kit.LocalQueue(w.Namespace, "default", w.Name("gpus")))
			w.fixConfig(ctx, w.eventuallyFinds(ctx, "error", "TrainJobNotListed", kueueConfig))
		}, SpecTimeout(specTimeout))

		It("KueueConfiguration", func(ctx context.Context) {
			w.configure(ctx, "kueue-system", "kueue-manager-config", "integrations:", "integrations: [")
			w.eventuallyFinds(ctx, "error", "KueueConfiguration", kueueConfig)
			w.configure(ctx, "kueue-system", "kueue-manager-config", "integrations: [", "integrations:")
			w.eventuallyInOrder(ctx)
		}, SpecTimeout(specTimeout))

		It("ManagerManaged", func(ctx context.Context) {
			w.configure(ctx, "kueue-system", "kueue-manager-config", "kind: Configuration", "kind: Configuration\nmanageJobsWithoutQueueName: true")
			w.fixConfig(ctx, w.eventuallyFinds(ctx, "warning", "ManagerManaged", "Namespace kueue-trainer-system"))
		}, SpecTimeout(specTimeout))

		It("KueueVersion", func(ctx context.Context) {
			config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kueue-system", Name: "kueue-manager-config"}}
			w.PatchJSON(ctx, config, `{"metadata":{"labels":{"app.kubernetes.io/version":"v0.18.3"}}}`)
			w.eventuallyFinds(ctx, "warning", "KueueVersion", "Kueue")
			w.PatchJSON(ctx, config, `{"metadata":{"labels":{"app.kubernetes.io/version":"v0.19.2"}}}`)
			w.eventuallyInOrder(ctx)
		}, SpecTimeout(specTimeout))

		It("FeatureGatesDiffer", func(ctx context.Context) {
			w.configure(ctx, "kueue-trainer-system", "kueue-trainer-config", "kind: Configuration", "kind: Configuration\nfeatureGates: {VisibilityOnDemand: true}")
			w.fixConfig(ctx, w.eventuallyFinds(ctx, "warning", "FeatureGatesDiffer", managerConfig))
		}, SpecTimeout(specTimeout))

		It("SettingsDiffer", func(ctx context.Context) {
			w.configure(ctx, "kueue-trainer-system", "kueue-trainer-config", "kind: Configuration", "kind: Configuration\nmanageJobsWithoutQueueName: true")
			w.fixConfig(ctx, w.eventuallyFinds(ctx, "warning", "SettingsDiffer", managerConfig))
		}, SpecTimeout(specTimeout))
	})
})

// findings returns what doctor finds, and checks its exit code against that. A check that could not
// be made, since the API server was busy, makes it another one.
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

// eventuallyInOrder waits until doctor finds nothing.
func (w *site) eventuallyInOrder(ctx context.Context) {
	Eventually(ctx, func(g Gomega) { g.Expect(w.findings(ctx, g)).To(BeEmpty()) }).Should(Succeed())
}

// eventuallyFinds waits for a finding and gives it.
func (w *site) eventuallyFinds(ctx context.Context, severity, reason, object string) finding {
	var found finding
	Eventually(ctx, func(g Gomega) {
		all := w.findings(ctx, g)
		i := slices.IndexFunc(all, func(f finding) bool { return f.Severity == severity && f.Reason == reason && f.Object == object })
		g.Expect(i).NotTo(Equal(-1), "%s %s of %s in %+v", severity, reason, object, all)
		found = all[i]
	}).Should(Succeed())
	Expect(found).To(And(HaveField("Problem", Not(BeEmpty())), HaveField("Effect", Not(BeEmpty())), HaveField("Commands", Not(BeEmpty()))))
	return found
}

// eventuallyLost waits until a kind of finding is gone.
func (w *site) eventuallyLost(ctx context.Context, reason string) {
	Eventually(ctx, func(g Gomega) {
		g.Expect(w.findings(ctx, g)).NotTo(ContainElement(HaveField("Reason", reason)))
	}).Should(Succeed())
}

// undo takes back what a spec has broken, after which nothing is to be found any more.
func (w *site) undo(ctx context.Context, undo func(context.Context)) {
	undo(ctx)
	w.eventuallyInOrder(ctx)
}

// fix pastes the commands of a finding, after which nothing is to be found any more.
func (w *site) fix(ctx context.Context, found finding) {
	shell(ctx, found.Commands...)
	w.eventuallyInOrder(ctx)
}

// fixConfig does so for a configuration. The restart that is its second command has no
// Deployment here, and nothing to do: the configuration was fixed before anybody read it.
func (w *site) fixConfig(ctx context.Context, found finding) {
	Expect(found.Commands).To(HaveLen(2))
	Expect(found.Commands[1]).To(ContainSubstring("rollout restart deployment"))
	found.Commands = found.Commands[:1]
	w.fix(ctx, found)
}

// makeWorkload makes a Workload of no TrainJob, which goes before the spec's namespace does.
func (w *site) makeWorkload(ctx context.Context, wl *kueue.Workload) {
	Expect(w.Create(ctx, wl)).To(Succeed())
	DeferCleanup(func(ctx context.Context) { Expect(client.IgnoreNotFound(w.Delete(ctx, wl))).To(Succeed()) })
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

// changeWebhook changes the only webhook of a configuration, until undo or the spec's end.
func (w *site) changeWebhook(ctx context.Context, configuration string, change func(*admissionregistrationv1.MutatingWebhook)) (undo func(context.Context)) {
	found := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: configuration}}
	var before *admissionregistrationv1.MutatingWebhook
	undo = func(ctx context.Context) {
		w.Change(ctx, found, func() { before.DeepCopyInto(&found.Webhooks[0]) })
	}
	w.Change(ctx, found, func() {
		before = found.Webhooks[0].DeepCopy()
		change(&found.Webhooks[0])
	})
	DeferCleanup(undo)
	return undo
}

// stopComponent stops a process, until start or the spec's end.
func stopComponent(ctx context.Context, component string) (start func(context.Context)) {
	start = func(ctx context.Context) {
		Expect(cluster.Control(ctx, "start", component, GinkgoWriter)).To(Succeed())
	}
	DeferCleanup(start)
	Expect(cluster.Control(ctx, "stop", component, GinkgoWriter)).To(Succeed())
	return start
}

// policyAfterOurs is a webhook of somebody else that is asked about TrainJobs after ours,
// and that nobody misses.
func (w *site) policyAfterOurs() *admissionregistrationv1.MutatingWebhookConfiguration {
	return &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: w.Name("policy")},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: "policy.example.com", AdmissionReviewVersions: []string{"v1"},
			SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone), FailurePolicy: ptr.To(admissionregistrationv1.Ignore),
			ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: ptr.To("https://127.0.0.1:1/")},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{"trainer.kubeflow.org"}, APIVersions: []string{"*"}, Resources: []string{"trainjobs"}},
			}},
		}},
	}
}

// restoreLater puts a ConfigMap back as it is now when the spec ends.
func (w *site) restoreLater(ctx context.Context, namespace, name string) {
	config := world.Found(ctx, Default, w, &corev1.ConfigMap{}, client.ObjectKey{Namespace: namespace, Name: name})
	config.ResourceVersion = ""
	DeferCleanup(func(ctx context.Context) { Expect(w.Update(ctx, config.DeepCopy())).To(Succeed()) })
}

// configure replaces texts in a configuration. Kueue and the manager read their own when they
// start; Kueue's settings, the manager follows at once.
func (w *site) configure(ctx context.Context, namespace, name string, oldNew ...string) {
	config := world.Found(ctx, Default, w, &corev1.ConfigMap{}, client.ObjectKey{Namespace: namespace, Name: name})
	for key, content := range config.Data {
		config.Data[key] = strings.NewReplacer(oldNew...).Replace(content)
		Expect(config.Data[key]).NotTo(Equal(content))
	}
	Expect(w.Update(ctx, config)).To(Succeed())
}
