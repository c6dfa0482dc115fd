// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	managed "github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/config"
	"github.com/kueue-trainer/kueue-trainer/pkg/webhookconfig"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/specs"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

var _ = Describe("Installed by its chart, kueue-trainer", Label("kind"), Serial, func() {
	var w *site

	BeforeEach(func(ctx context.Context) {
		if cluster.KindDir() == "" {
			Skip("the specs of this group need the chart's release; run them on a cluster of make kind-up")
		}
		w = newPools(ctx, "16", "0")
	}, NodeTimeout(specTimeout))

	It("gets ready without a certificate to begin with, and never restarts for it", func(ctx context.Context) {
		DeferCleanup(func(ctx context.Context) { scaleManager(ctx, 2) })
		Expect(scaleManager(ctx, 0)).To(BeEmpty())
		w.emptyAuthority(ctx)
		for _, pod := range scaleManager(ctx, 2) {
			Expect(pod).To(world.True(string(corev1.PodReady)), pod.Name)
			Expect(pod.Status.ContainerStatuses[0].RestartCount).To(BeZero(), pod.Name)
		}
		// As soon as kube-proxy knows the new pods.
		w.eventuallyCreate(ctx, w.Job("job").GPUs("8").Obj())
		w.EventuallyRuns(ctx, "job", 1, onH100)
	}, SpecTimeout(specTimeout))

	It("is rolled out while jobs come and go, and refuses no write and restarts no pod", kindCore, func(ctx context.Context) {
		w.Make(ctx, w.Job("runs").GPUs("8").Obj())
		pods, wl := w.EventuallyRuns(ctx, "runs", 1, onH100), w.Workload(ctx, "runs")
		churn := w.startWriting(ctx)

		restartManager(ctx)
		churn.stop()
		Expect(churn.refused).To(BeEmpty())
		Expect(churn.written.Load()).To(BeNumerically(">", 10))
		w.ConsistentlyKeeps(ctx, "runs", pods, wl)
	}, SpecTimeout(specTimeout))

	It("has its certificates rotated while jobs come and go, and refuses no write", func(ctx context.Context) {
		before := authority(ctx)
		churn := w.startWriting(ctx)
		w.emptyAuthority(ctx)
		Eventually(ctx, func() []byte { return authority(ctx) }).ShouldNot(Or(BeEmpty(), Equal(before)))
		// Each replica changes over on its own; writes go to both.
		written := churn.written.Load()
		Eventually(ctx, churn.written.Load).Should(BeNumerically(">", written+100))
		churn.stop()
		Expect(churn.refused).To(BeEmpty())
	}, SpecTimeout(specTimeout))

	It("loses one leader after the other, and every job runs once", func(ctx context.Context) {
		w.Make(ctx, kit.Priority(w.Name("low"), 1), kit.Priority(w.Name("high"), 100))
		pods := w.record(ctx, podResource)
		for i := range 8 {
			w.eventuallyCreate(ctx, w.churnJob(i))
		}
		const all = 8 + 2*4
		for kill := range 2 {
			Expect(w.eventuallyBusy(ctx)).To(BeTrue(), "jobs run and others wait when the leader is killed")
			killLeader(ctx)
			for i := range 4 {
				w.eventuallyCreate(ctx, w.churnJob(8+4*kill+i))
			}
		}
		for i := range all {
			w.eventuallyFinished(ctx, fmt.Sprintf("job-%d", i))
		}
		Eventually(ctx, pods.CaughtUp).Should(Succeed())
		for i := range all {
			name := fmt.Sprintf("job-%d", i)
			Expect(boundPods(pods, name)).To(BeNumerically("<=", 1+evictions(w.Workload(ctx, name))), "pods that %s ever had, one per admission", name)
		}
		managerPods(ctx, 2)
	}, SpecTimeout(2*specTimeout))

	It("works on at its memory limit", func(ctx context.Context) {
		DeferCleanup(func(ctx context.Context) { limitMemory(ctx, "512Mi", "128Mi") })
		limitMemory(ctx, "96Mi", "64Mi")
		for i := range 60 {
			w.Make(ctx, w.Job(fmt.Sprintf("waits-%d", i)).GPUs("800").Obj())
		}
		w.MakeRunning(ctx, w.Job("runs").GPUs("8"), 1, onH100)
		w.EventuallyAtTheGate(ctx, "waits-59")
		for _, pod := range managerPods(ctx, 2) {
			Expect(pod.Status.ContainerStatuses[0].RestartCount).To(BeZero(), pod.Name)
		}
	}, SpecTimeout(2*specTimeout))

	It("is uninstalled and leaves nothing that needs it, and takes up again what waits when it is back", func(ctx context.Context) {
		pods := w.MakeRunning(ctx, w.Job("runs").Nodes(2).GPUs("8"), 2, onH100)
		w.MakeGated(ctx, w.Job("waits").GPUs("8"), 1)
		w.runsOutside("nobody looks after TrainJobs while kueue-trainer is uninstalled")
		DeferCleanup(func(ctx context.Context) {
			if CurrentSpecReport().Failed() {
				// Helm upgrades no release whose uninstallation failed.
				helm(ctx, "uninstall", "--no-hooks", "--ignore-not-found")
				helm(ctx, "upgrade", "--install")
			}
		})

		helm(ctx, "uninstall")
		Eventually(ctx, func() []string { return w.gates(ctx, "waits") }).Should(BeEmpty())
		Expect(jsonOf(w.raw(ctx, "waits", "runtimePatches"))).NotTo(ContainSubstring("kueue-trainer.dev/admission"))
		Expect(w.TrainJob(ctx, "waits").Spec.Suspend).To(HaveValue(BeTrue()))
		Expect(w.Workload(ctx, "waits")).To(BeNil())
		Expect(w.Workload(ctx, "runs").Finalizers).To(BeEmpty())
		Expect(world.UIDs(w.Pods(ctx, "runs"))).To(ConsistOf(world.UIDs(pods)))

		helm(ctx, "upgrade", "--install")
		w.EventuallyAtTheGate(ctx, "waits")
		Eventually(ctx, func() []string { return w.Workload(ctx, "runs").Finalizers }).
			Should(ContainElement(kueue.ResourceInUseFinalizerName), "it holds the quota until the last pod is gone")
		Expect(world.UIDs(w.Pods(ctx, "runs"))).To(ConsistOf(world.UIDs(pods)))
		w.Finish(ctx, "runs", "succeeded")
		w.EventuallyRuns(ctx, "waits", 1, onH100)
	}, SpecTimeout(2*specTimeout))
})

// helm runs a command on the chart's release as make kind-up installed it, and waits.
func helm(ctx context.Context, command ...string) {
	args := slices.Concat(command, []string{"kueue-trainer"})
	if command[0] == "upgrade" {
		args = append(args, filepath.Join(specs.Root(), "charts", "kueue-trainer"), "--values", filepath.Join(cluster.KindDir(), "values.yaml"))
	}
	stdout, stderr, code := runBinary(ctx, "", "helm", append(args, "--namespace", config.Namespace, "--wait", "--timeout", "2m")...)
	Expect(code).To(BeZero(), stdout+stderr)
}

// managerPods waits until the manager has so many pods and all are ready.
func managerPods(ctx context.Context, n int) []corev1.Pod {
	var pods corev1.PodList
	Eventually(ctx, func(g Gomega) []corev1.Pod {
		return world.All(ctx, g, cluster.Client, &pods, client.InNamespace(config.Namespace),
			client.MatchingLabels{"app.kubernetes.io/name": "kueue-trainer"}).Items
	}).Should(And(HaveLen(n), Or(BeEmpty(), HaveEach(world.True(string(corev1.PodReady))))))
	return pods.Items
}

func patchManager(ctx context.Context, patch string) {
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: config.Namespace, Name: managed.ManagerDeployment}}
	Expect(cluster.Client.Patch(ctx, deployment, client.RawPatch("application/strategic-merge-patch+json", []byte(patch)))).To(Succeed())
}

// scaleManager waits until the manager has so many pods, which it returns.
func scaleManager(ctx context.Context, replicas int) []corev1.Pod {
	patchManager(ctx, fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas))
	return managerPods(ctx, replicas)
}

// restartManager restarts the process of a local control plane, and elsewhere the Deployment, and waits for it.
func restartManager(ctx context.Context) {
	if cluster.Local() {
		control(ctx, "restart", cluster.Manager())
		return
	}
	patchManager(ctx, fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":%q}}}}}`, time.Now().Format(time.RFC3339Nano)))
	eventuallyRolledOut(ctx)
}

func limitMemory(ctx context.Context, limit, request string) {
	patchManager(ctx, fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":"manager","resources":{"limits":{"memory":%q},"requests":{"memory":%q}}}]}}}}`, limit, request))
	eventuallyRolledOut(ctx)
}

func eventuallyRolledOut(ctx context.Context) {
	Eventually(ctx, func(g Gomega) {
		d := world.Found(ctx, g, cluster.Client, &appsv1.Deployment{}, client.ObjectKey{Namespace: config.Namespace, Name: managed.ManagerDeployment})
		g.Expect(d.Status.ObservedGeneration).To(Equal(d.Generation))
		g.Expect([]int32{d.Status.UpdatedReplicas, d.Status.AvailableReplicas, d.Status.Replicas}).To(HaveEach(*d.Spec.Replicas))
	}).WithTimeout(2 * time.Minute).Should(Succeed())
	managerPods(ctx, 2)
}

// killLeader kills the pod that leads, without a word, and waits until another one does.
func killLeader(ctx context.Context) {
	leader := leaderPod(ctx)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: config.Namespace, Name: leader}}
	Expect(cluster.Client.Delete(ctx, pod, client.GracePeriodSeconds(0))).To(Succeed())
	Eventually(ctx, func() string { return leaderPod(ctx) }).ShouldNot(Or(BeEmpty(), Equal(leader)))
	managerPods(ctx, 2)
}

func leaderPod(ctx context.Context) string {
	leases := world.All(ctx, Default, cluster.Client, &coordinationv1.LeaseList{}, client.InNamespace(config.Namespace))
	Expect(leases.Items).To(HaveLen(1))
	name, _, _ := strings.Cut(ptr.Deref(leases.Items[0].Spec.HolderIdentity, ""), "_")
	return name
}

// authority is what the API server trusts the manager's webhooks by.
func authority(ctx context.Context) []byte {
	webhooks := world.Found(ctx, Default, cluster.Client, &admissionregistrationv1.ValidatingWebhookConfiguration{}, client.ObjectKey{Name: webhookconfig.Installed.Validating})
	return webhooks.Webhooks[0].ClientConfig.CABundle
}

// emptyAuthority has the manager make another authority.
func (w *site) emptyAuthority(ctx context.Context) {
	w.PatchJSON(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: config.Namespace, Name: "kueue-trainer-webhook-server-cert"}}, `{"data":null}`)
}

// writing creates, changes and deletes a queued TrainJob over and over.
type writing struct {
	stop    func()
	written atomic.Int32
	// refused is what the API server did not take until stop.
	refused []string
}

func (w *site) startWriting(ctx context.Context) *writing {
	running, cancel := context.WithCancel(ctx)
	c := &writing{}
	var done sync.WaitGroup
	c.stop = func() { cancel(); done.Wait() }
	done.Go(func() {
		for i := 0; running.Err() == nil; i++ {
			job := w.Job(fmt.Sprintf("written-%d", i)).GPUs("800").Obj()
			c.note(running, "create", w.Create(running, job))
			before := job.DeepCopy()
			job.Labels["example.com/changed"] = "true"
			c.note(running, "change", w.Patch(running, job, client.MergeFrom(before)))
			c.note(running, "delete", w.Delete(running, job))
		}
	})
	DeferCleanup(c.stop)
	return c
}

func (c *writing) note(ctx context.Context, verb string, err error) {
	if ctx.Err() != nil {
		return
	}
	c.written.Add(1)
	if err != nil && !apierrors.IsConflict(err) {
		c.refused = append(c.refused, verb+": "+err.Error())
	}
}
