// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// eventuallyRunsOn waits until a TrainJob of the manager cluster has its one pod in a worker,
// running, and the manager cluster says so.
func (w *sites) eventuallyRunsOn(ctx context.Context, worker *site, job string) corev1.Pod {
	GinkgoHelper()
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
	GinkgoHelper()
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
	GinkgoHelper()
	stored := w.manager.trainJob(ctx, job)
	Expect(stored.Spec.ManagedBy).To(HaveValue(Equal(kueue.MultiKueueControllerName)))
	if w.manager.Cluster.Integration == world.External {
		Expect(entries(stored)).NotTo(ContainElement(patch.Manager))
	}
	Expect(w.manager.Pods(ctx, job)).To(BeEmpty())
}

// eventuallyOver waits until the manager cluster says that a TrainJob has ended.
func (w *sites) eventuallyOver(ctx context.Context, job, condition string) {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		g.Expect(apimeta.IsStatusConditionTrue(w.manager.trainJob(ctx, job).Status.Conditions, condition)).To(BeTrue(), condition)
		wl := w.manager.Workload(ctx, job)
		g.Expect(wl).NotTo(BeNil())
		g.Expect(apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadFinished)).To(BeTrue(), "the Workload")
	}).Should(Succeed())
}
