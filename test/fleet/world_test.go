// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

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

// makeRunning makes a TrainJob in the manager cluster, and waits until it runs in a worker.
func (w *sites) makeRunning(ctx context.Context, worker *site, job *kit.TrainJobBuilder) corev1.Pod {
	w.manager.Make(ctx, job.Obj())
	return w.eventuallyRunsOn(ctx, worker, job.Name)
}

// open makes a queue of H100s, or one behind admission checks.
func (s *site) open(ctx context.Context, gpus string, checks ...string) {
	flavor := kit.Flavor(s.Name("gpus"), map[string]string{kit.ProductLabel: kit.H100}, kit.GPUToleration())
	s.Pool(ctx, flavor, gpus, checks...)
}

// eventuallyOpen waits until Kueue knows where the spec's queue leads.
func (s *site) eventuallyOpen(ctx context.Context) {
	s.EventuallyIs(ctx, &kueue.LocalQueue{}, "queue", world.True(kueue.LocalQueueActive))
}

// job starts a TrainJob in the spec's queue.
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

// all sites, the manager cluster's first.
func (w *sites) all() []*site { return []*site{w.manager, w.worker1, w.worker2} }

// workers of the fleet.
func (w *sites) workers() []*site { return []*site{w.worker1, w.worker2} }

// trainJob reads a TrainJob, nil if there is none.
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
// running, and the manager cluster says so.
func (w *sites) eventuallyRunsOn(ctx context.Context, worker *site, job string) corev1.Pod {
	var pods []corev1.Pod
	Eventually(ctx, func(g Gomega) {
		pods = worker.Pods(ctx, job)
		g.Expect(pods).To(HaveLen(1), "pods in %s", worker.Cluster.Name)
		g.Expect(pods[0].DeletionTimestamp).To(BeNil())
		g.Expect(pods[0].Status.Phase).To(Equal(corev1.PodRunning))
		wl := w.manager.Workload(ctx, job)
		g.Expect(wl).NotTo(BeNil())
		g.Expect(wl.Status.ClusterName).To(HaveValue(Equal(worker.Cluster.Name)))
		g.Expect(w.manager.trainJob(ctx, job).Spec.Suspend).To(HaveValue(BeFalse()))
	}).Should(Succeed())
	return pods[0]
}

// expectPlaced checks that a pod carries the placement of its worker, no more and no less.
func expectPlaced(pod *corev1.Pod) {
	Expect(pod.Spec.NodeSelector).To(Equal(map[string]string{kit.ProductLabel: kit.H100}))
	Expect(world.Tolerations(pod)).To(ConsistOf(kit.GPUToleration()))
	Expect(pod.Spec.SchedulingGates).To(BeEmpty())
	Expect(pod.Labels).To(HaveKeyWithValue(kueue.MultiKueueWorkerWorkloadPodLabel, kueue.MultiKueueWorkerWorkloadPodValue))
}

// entries are the managers of a TrainJob's patch entries.
func entries(job *trainer.TrainJob) []string {
	var managers []string
	for _, entry := range job.Spec.RuntimePatches {
		managers = append(managers, entry.Manager)
	}
	return managers
}

// expectNothingHere checks that nothing of a TrainJob runs in the manager cluster, and nothing of
// ours is in it.
func (w *sites) expectNothingHere(ctx context.Context, job string) {
	stored := w.manager.trainJob(ctx, job)
	Expect(stored.Spec.ManagedBy).To(HaveValue(Equal(kueue.MultiKueueControllerName)))
	if w.manager.Cluster.Integration == world.External {
		Expect(entries(stored)).NotTo(ContainElement(patch.Manager))
	}
	Expect(w.manager.Pods(ctx, job)).To(BeEmpty())
}

// eventuallyOver waits until the manager cluster says that a TrainJob has ended.
func (w *sites) eventuallyOver(ctx context.Context, job, condition string) {
	w.manager.EventuallyIs(ctx, &trainer.TrainJob{}, job, world.True(condition))
	w.manager.EventuallyCondition(ctx, job, kueue.WorkloadFinished)
}
