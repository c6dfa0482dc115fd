// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"slices"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// finding is what the specs look at in `kubectl trainjob doctor -o json`.
type finding struct {
	Reason, Object, Problem string
	Commands                []string
}

// doctor returns what is found about an object.
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

// accessFor is the Secret of a worker in the manager cluster by another name, with a token that
// does not last.
func (s *site) accessFor(ctx context.Context, manager *site, name string, lasts time.Duration) *corev1.Secret {
	secret := world.Found(ctx, Default, manager, &corev1.Secret{}, client.ObjectKey{Namespace: "kueue-system", Name: s.Cluster.Name})
	config := must(clientcmd.Load(secret.Data[kueue.MultiKueueConfigSecretKey]))
	token := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(lasts.Seconds()))}}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "kueue-system", Name: "multikueue"}}
	Expect(s.SubResource("token").Create(ctx, account, token)).To(Succeed())
	config.AuthInfos[config.Contexts[config.CurrentContext].AuthInfo].Token = token.Status.Token
	content := must(clientcmd.Write(*config))
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
