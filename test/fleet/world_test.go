// SPDX-License-Identifier: Apache-2.0

// Package fleet holds the specs of TrainJobs that MultiKueue runs in other clusters. They run on
// the fleet of KUBECONFIG, or bring one up and take it down again.
package fleet

import (
	"context"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
	"github.com/kueue-trainer/kueue-trainer/test/kit/specs"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// fleetDir is where the suite brings its fleet up. That of `make fleet-up` is left alone.
const fleetDir = ".fleet-e2e"

// specTimeout ends a spec that hangs; none is made to need it.
const specTimeout = 5 * time.Minute

var (
	// core marks what every change has to pass.
	core = Label("core")
	// long marks specs that take above 20 seconds.
	long = Label("long")
)

var fleet *world.Fleet

// Three control planes share the machine.
func TestFleet(t *testing.T) { specs.Run(t, "kueue-trainer fleet", 2*time.Minute) }

var _ = BeforeSuite(func(ctx context.Context) {
	if kubeconfig := os.Getenv("KUBECONFIG"); kubeconfig != "" {
		fleet = specs.Must(world.UseFleet(filepath.Dir(kubeconfig)))
	} else {
		fleet = specs.Must(world.StartFleet(ctx, filepath.Join(specs.Root(), fleetDir), GinkgoWriter))
	}
	// Specs of a fleet of other releases than it is to have would say nothing of these.
	for i, choice := range strings.Split(os.Getenv("FLEET_WORKERS"), ",") {
		if _, generation, named := strings.Cut(choice, ":"); named {
			Expect(fleet.Workers[i].Trainer(ctx)).To(Equal(generation), "Trainer of %s", fleet.Workers[i].Name)
		}
	}
})

var _ = AfterSuite(func(ctx context.Context) {
	if fleet != nil {
		Expect(fleet.Stop(ctx, GinkgoWriter)).To(Succeed())
	}
})

// check is the AdmissionCheck of config/samples/multikueue.
const check = "workers"

// site is a spec's namespace in one cluster, with a queue of one flavor, which are both named "gpus".
type site struct{ *world.World }

// sites are what one spec works in: a namespace and queues of its own in every cluster.
type sites struct {
	manager, worker1, worker2 *site
}

// newWorld makes queue "queue" in every cluster, with so many H100s in each worker.
func newWorld(ctx context.Context, gpus1, gpus2 string) *sites {
	suffix := world.NewSuffix()
	of := func(c *world.Cluster) *site { return &site{world.New(ctx, Default, GinkgoWriter, c, "fleet", suffix)} }
	w := &sites{manager: of(fleet.Manager), worker1: of(fleet.Workers[0]), worker2: of(fleet.Workers[1])}
	DeferCleanup(w.leave)
	w.worker1.open(ctx, gpus1)
	w.worker2.open(ctx, gpus2)
	w.manager.open(ctx, "64", check)
	for _, s := range w.all() {
		s.eventuallyOpen(ctx)
	}
	return w
}

// newRunning makes a world with 8 H100s in the first worker, all of which TrainJob "llm" has.
func newRunning(ctx context.Context) (*sites, corev1.Pod) {
	w := newWorld(ctx, "8", "0")
	return w, w.makeRunning(ctx, w.worker1, w.manager.job("llm"))
}

func (w *sites) makeRunning(ctx context.Context, worker *site, job *kit.TrainJobBuilder) corev1.Pod {
	w.manager.Make(ctx, job.Obj())
	return w.eventuallyRunsOn(ctx, worker, job.Name)
}

func (s *site) open(ctx context.Context, gpus string, checks ...string) {
	flavor := kit.Flavor(s.Name("gpus"), map[string]string{kit.ProductLabel: kit.H100}, kit.GPUToleration())
	s.Pool(ctx, flavor, gpus, checks...)
}

// eventuallyOpen waits until Kueue knows where the spec's queue leads.
func (s *site) eventuallyOpen(ctx context.Context) {
	s.EventuallyIs(ctx, &kueue.LocalQueue{}, "queue", world.True(kueue.LocalQueueActive))
}

func (s *site) job(name string) *kit.TrainJobBuilder { return s.Job(name).GPUs("8") }

// leave takes everything away, in the manager cluster first. A spec that failed prints it before.
func (w *sites) leave(ctx context.Context) {
	if CurrentSpecReport().Failed() {
		for _, s := range w.all() {
			s.Dump(ctx)
		}
	}
	for _, s := range w.all() {
		s.DeleteJobs(ctx)
	}
	for _, s := range w.all() {
		s.EventuallyEmpty(ctx)
	}
	for _, s := range w.all() {
		s.Unmake(ctx)
	}
}

func (w *sites) all() []*site     { return []*site{w.manager, w.worker1, w.worker2} }
func (w *sites) workers() []*site { return []*site{w.worker1, w.worker2} }

func (s *site) trainJob(ctx context.Context, name string) *trainer.TrainJob {
	job := &trainer.TrainJob{}
	err := s.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: name}, job)
	if apierrors.IsNotFound(err) {
		return nil
	}
	Expect(err).NotTo(HaveOccurred())
	return job
}

// ended reports whether a pod holds its node no more, although it may still be there.
func ended(pod corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// eventuallyRunsOn waits until a TrainJob of the manager cluster has its one pod in a worker,
// running, and the manager cluster says so. The pod carries the placement of its worker, no more and no less.
func (w *sites) eventuallyRunsOn(ctx context.Context, worker *site, job string) corev1.Pod {
	var pods []corev1.Pod
	Eventually(ctx, func(g Gomega) {
		pods = worker.Pods(ctx, job)
		g.Expect(pods).To(ConsistOf(world.Running()), "pods in %s", worker.Cluster.Name)
		g.Expect(w.manager.Workload(ctx, job)).To(HaveField("Status.ClusterName", HaveValue(Equal(worker.Cluster.Name))))
		g.Expect(w.manager.trainJob(ctx, job).Spec.Suspend).To(HaveValue(BeFalse()))
	}).Should(Succeed())
	Expect(pods[0].Spec.NodeSelector).To(Equal(map[string]string{kit.ProductLabel: kit.H100}))
	Expect(world.Tolerations(&pods[0])).To(ConsistOf(kit.GPUToleration()))
	Expect(pods[0].Spec.SchedulingGates).To(BeEmpty())
	Expect(pods[0].Labels).To(HaveKeyWithValue(kueue.MultiKueueWorkerWorkloadPodLabel, kueue.MultiKueueWorkerWorkloadPodValue))
	return pods[0]
}

func entries(job *trainer.TrainJob) []string {
	return expect.Each(job.Spec.RuntimePatches, func(entry trainer.RuntimePatch) string { return entry.Manager })
}

// expectNothingHere checks that nothing of a TrainJob runs in the manager cluster, and nothing of ours is in it.
func (w *sites) expectNothingHere(ctx context.Context, job string) {
	stored := w.manager.trainJob(ctx, job)
	Expect(stored.Spec.ManagedBy).To(HaveValue(Equal(kueue.MultiKueueControllerName)))
	if w.manager.Cluster.Integration == world.External {
		Expect(entries(stored)).NotTo(ContainElement(patch.Manager))
	}
	Expect(w.manager.Pods(ctx, job)).To(BeEmpty())
}

func (w *sites) eventuallyOver(ctx context.Context, job, condition string) {
	w.manager.EventuallyIs(ctx, &trainer.TrainJob{}, job, world.True(condition))
	w.manager.EventuallyCondition(ctx, job, kueue.WorkloadFinished)
}

func (w *sites) ends(ctx context.Context, worker *site, job string) {
	worker.Finish(ctx, job, "succeeded")
	w.eventuallyOver(ctx, job, trainer.TrainJobComplete)
}

// contexts is a kubeconfig of the fleet, of which the plugin gets to see some contexts.
type contexts struct{ specs.Terminal }

// allContexts has one for each cluster, named like it.
func allContexts() contexts   { return of(fleet.Kubeconfig()) }
func of(file string) contexts { return contexts{specs.Terminal{Kubeconfig: file}} }

// renamed has the context of the manager cluster and those given, by other names.
func renamed(names map[string]string) contexts {
	config := specs.Must(clientcmd.LoadFromFile(fleet.Kubeconfig()))
	there := maps.Clone(config.Contexts)
	delete(config.Contexts, "worker1")
	delete(config.Contexts, "worker2")
	for worker, name := range names {
		config.Contexts[name] = there[worker]
	}
	file := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(clientcmd.WriteToFile(*config, file)).To(Succeed())
	return of(file)
}

func (c contexts) command(ctx context.Context, args ...string) *exec.Cmd {
	return c.Command(ctx, "kubectl-trainjob", append([]string{"--context", "manager"}, args...)...)
}

func (c contexts) plugin(ctx context.Context, args ...string) (stdout, stderr string, code int) {
	return c.Run(c.command(ctx, args...), "")
}

func (c contexts) says(ctx context.Context, args ...string) string {
	stdout, stderr, code := c.plugin(ctx, args...)
	Expect(code).To(BeZero(), stderr)
	return stdout
}
