// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/ledger"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// These specs change Kueue's configuration, which only a local control plane lets them do.
var _ = Describe("TrainJobs and Kueue's in-tree integration", Label("control"), Serial, func() {
	BeforeEach(func() { DeferCleanup(repair) })

	It("migrate there and back: no pod restarts, who waited or was preempted runs later", since(world.Trainer22), func(ctx context.Context) {
		w := newWorld(ctx)
		// The in-tree integration leaves it to flavors to tolerate GPU nodes.
		w.Pools(ctx, "16", "8", gpuToleration)
		w.MakeRunning(ctx, w.Job("preempted").GPUs("8"), 1, onH100, kit.Priority(w.Name("urgent"), 1000))
		w.Make(ctx,
			w.Job("mpi").Runtime("deepspeed-distributed").Nodes(2).GPUs("8").Priority(w.Name("urgent")).Obj(),
			w.Job("torch").GPUs("8").Priority(w.Name("urgent")).Obj())
		running := map[string]int{"torch": 1, "mpi": 2}
		pods, workloads := map[string][]corev1.Pod{}, map[string]*kueue.Workload{}
		for job, n := range running {
			pods[job] = w.EventuallyRuns(ctx, job, n, nil)
			workloads[job] = w.Workload(ctx, job)
		}
		w.EventuallyAtTheGate(ctx, "preempted")
		w.MakeGated(ctx, w.Job("waits").GPUs("8"), 1)
		w.EventuallyWorkload(ctx, "waits", Not(BeNil()))
		names := map[string]string{"preempted": w.Workload(ctx, "preempted").Name, "waits": w.Workload(ctx, "waits").Name}

		migrate := func(integration string) {
			handOver(ctx, integration)
			for job := range running {
				w.Touch(ctx, job)
				w.TouchPods(ctx, job)
				w.ConsistentlyKeeps(ctx, job, pods[job], workloads[job])
			}
			for job, name := range names {
				Expect(w.Workload(ctx, job)).To(HaveField("Name", name), job)
			}
		}
		Expect(handBack(ctx)).To(ContainSubstring("kueue-trainer is active"))
		foretold, refused, _ := plugin(ctx, "hand-back", "-n", w.Namespace, "--dry-run")
		Expect(foretold + refused).To(ContainSubstring("nothing stands in the way of"))
		migrate(world.InTree)
		// The in-tree integration adds its entry to what is in no queue, too.
		free := kit.TrainJob(w.Namespace, "free").Obj()
		free.Spec.Suspend = new(true)
		w.Make(ctx, free)
		migrate(world.External)
		w.PatchJSON(ctx, free, `{"metadata":{"labels":{"example.com/team":"a"}}}`)
		w.PatchJSON(ctx, free, `{"spec":{"suspend":false}}`)
		w.EventuallyRuns(ctx, "free", 1, nil)
		// As the documentation has it: at no time does nobody look after TrainJobs.
		migrate(world.Both)
		Eventually(ctx, func() string { return handBack(ctx) }).Should(ContainSubstring("waits: gate removed"))
		migrate(world.InTree)
		// The in-tree integration starts what waited under this one ...
		w.Make(ctx, w.Job("later").GPUs("8").Obj())
		w.Finish(ctx, "torch", "succeeded")
		delete(running, "torch")
		w.EventuallyCondition(ctx, "torch", kueue.WorkloadFinished)
		started := w.eventuallyOneRuns(ctx, "preempted", "waits")
		running[started], pods[started], workloads[started] = 1, w.Pods(ctx, started), w.Workload(ctx, started)
		delete(names, started)

		// ... and this one what waited under that one.
		migrate(world.External)
		for job := range running {
			w.Finish(ctx, job, "succeeded")
		}
		for job := range names {
			w.EventuallyRuns(ctx, job, 1, nil)
		}
		w.EventuallyRuns(ctx, "later", 1, nil)
	}, SpecTimeout(2*specTimeout))

	It("lose the gate when this project is uninstalled, and get it back with it", core, func(ctx context.Context) {
		w, _ := newRunning(ctx, "runs")
		w.MakeGated(ctx, w.Job("waits").GPUs("8"), 1)

		Expect(handBack(ctx)).To(ContainSubstring("kueue-trainer is active"))
		w.EventuallyAtTheGate(ctx, "waits")
		Expect(w.gates(ctx, "waits")).To(ConsistOf(patch.AdmissionGate))
		handOver(ctx, world.InTree)
		Expect(jsonOf(w.raw(ctx, "waits", fieldOf[trainerOf(ctx)]))).NotTo(ContainSubstring(patch.AdmissionGate))
		Eventually(ctx, func() []string { return w.gates(ctx, "waits") }).Should(BeEmpty())

		handOver(ctx, world.External)
		w.EventuallyAtTheGate(ctx, "waits")
		w.Finish(ctx, "runs", "succeeded")
		exactlyPlaced(w.EventuallyRuns(ctx, "waits", 1, onH100))
	}, SpecTimeout(specTimeout))

	It("are left to it, and told so, while both are active; nothing stops and all of them run", long, since(world.Trainer22), func(ctx context.Context) {
		w := newPools(ctx, "8", "0", gpuToleration)
		pods := w.MakeRunning(ctx, w.Job("runs").GPUs("8"), 1, onH100)
		wl := w.Workload(ctx, "runs")
		w.MakeGated(ctx, w.Job("waits").GPUs("8"), 1)

		handOver(ctx, world.Both)
		Eventually(ctx, func() string { return fetch(ctx, "health", "/readyz?verbose") }).Should(ContainSubstring("[-]in-tree-integration-off failed"))
		Eventually(ctx, func() string { return fetch(ctx, "metrics", "/metrics") }).Should(ContainSubstring("\nkueue_trainer_in_tree_integration{state=\"active\"} 1\n"))
		for _, job := range []string{"runs", "waits"} {
			w.EventuallyNotes(ctx, job, "InTreeActive").Should(ConsistOf(ContainSubstring("take trainer.kubeflow.org/trainjob out of integrations.frameworks")), job)
		}
		w.Touch(ctx, "runs")
		w.ConsistentlyKeeps(ctx, "runs", pods, wl)
		w.Make(ctx, w.Job("new").GPUs("8").Obj())
		w.Finish(ctx, "runs", "succeeded")
		first := w.eventuallyOneRuns(ctx, "waits", "new")
		second := map[string]string{"waits": "new", "new": "waits"}[first]

		pods, wl = w.Pods(ctx, first), w.Workload(ctx, first)
		handOver(ctx, world.External)
		Eventually(ctx, func() string { return fetch(ctx, "metrics", "/metrics") }).Should(ContainSubstring("\nkueue_trainer_in_tree_integration{state=\"active\"} 0\n"))
		w.ConsistentlyKeeps(ctx, first, pods, wl)
		w.Finish(ctx, first, "succeeded")
		w.EventuallyRuns(ctx, second, 1, onH100)
	}, SpecTimeout(specTimeout))
})

// handBack runs the plugin's command as an admin does and gives what it says.
func handBack(ctx context.Context) string {
	stdout, stderr, _ := plugin(ctx, "hand-back", "--all-namespaces")
	return stdout + stderr
}

// gates returns the scheduling gates that pods of a TrainJob's child Jobs are made with.
func (w *site) gates(ctx context.Context, job string) []string {
	var names []string
	for _, j := range w.ChildJobs(ctx, job) {
		for _, gate := range j.Spec.Template.Spec.SchedulingGates {
			names = append(names, gate.Name)
		}
	}
	return names
}

// eventuallyOneRuns waits until one of two TrainJobs runs its only pod, and names it.
func (w *site) eventuallyOneRuns(ctx context.Context, jobs ...string) string {
	var running string
	Eventually(ctx, func(g Gomega) {
		running = ""
		for _, job := range jobs {
			if pods := w.Pods(ctx, job); len(pods) == 1 && pods[0].Status.Phase == corev1.PodRunning {
				running = job
			}
		}
		g.Expect(running).NotTo(BeEmpty(), "one of %v must run", jobs)
	}).Should(Succeed())
	return running
}

// These specs stop processes and read the audit log, which only a local control plane lets them do.
var _ = Describe("Before it is known whether the in-tree integration is active", Label("control", "external"), Serial, func() {
	BeforeEach(func() { DeferCleanup(repair) })

	It("a start beside it writes nothing, before the answer and after", since(world.Trainer22), long, Label("invariant", "stock-neighbours"), func(ctx context.Context) {
		w := newPools(ctx, "8", "0", gpuToleration)
		handOver(ctx, world.Both)
		Eventually(ctx, func() string { return fetch(ctx, "health", "/readyz?verbose") }).Should(ContainSubstring("[-]in-tree-integration-off failed"))
		w.Make(ctx, w.Job("runs").GPUs("8").Obj())
		pods, wl := w.EventuallyRuns(ctx, "runs", 1, onH100), w.Workload(ctx, "runs")
		// The in-tree integration gives no gate, so this one is written by who looks after it.
		w.MakePending(ctx, w.Job("waits").GPUs("8"))

		control(ctx, "stop", "kueue-trainer", "kueue")
		writes := managerWrites()
		control(ctx, "start", "kueue-trainer")
		Eventually(ctx, func() string { return fetch(ctx, "metrics", "/metrics") }).Should(ContainSubstring("\nkueue_trainer_in_tree_integration{state=\"unknown\"} 1\n"))
		Consistently(ctx, writes).Should(BeEmpty())

		control(ctx, "start", "kueue")
		Eventually(ctx, func() string { return fetch(ctx, "metrics", "/metrics") }).Should(ContainSubstring("\nkueue_trainer_in_tree_integration{state=\"active\"} 1\n"))
		w.Finish(ctx, "runs", "succeeded")
		w.EventuallyRuns(ctx, "waits", 1, onH100)
		account := " configmaps " + ledger.ConfigMapName + " "
		Expect(slices.DeleteFunc(writes(), func(write string) bool { return strings.Contains(write, account) })).To(BeEmpty())
		Expect(pods).To(HaveLen(1))
		Expect(w.Workload(ctx, "runs").UID).To(Equal(wl.UID))
	}, SpecTimeout(specTimeout))
})
