// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// docs/features.md names these specs. All gates are on at once, because Kueue has to start again.
var _ = Describe("With alpha features of MultiKueue", Serial, Ordered, long, func() {
	BeforeAll(func(ctx context.Context) {
		for _, c := range append([]*world.Cluster{fleet.Manager}, fleet.Workers...) {
			restartKueueWith(ctx, c, map[string]any{"featureGates": map[string]any{
				"MultiKueueManagerQuotaAutomation": true, "MultiKueueOrchestratedPreemption": true,
			}})
		}
		for _, c := range fleet.Workers {
			letReadQueues(ctx, c)
		}
	})

	It("the queue of the manager cluster has the quota of the workers together", func(ctx context.Context) {
		manageQuota(ctx, kueue.QuotaManagementAutomated)
		DeferCleanup(manageQuota, kueue.QuotaManagementManual)
		w := newWorld(ctx, "8", "8")
		Eventually(ctx, w.manager.quota).Should(Equal("16"))
		w.worker2.setQuota(ctx, "16")
		Eventually(ctx, w.manager.quota).Should(Equal("24"))
		w.worker1.setStopPolicy(ctx, kueue.Hold)
		w.makeRunning(ctx, w.worker2, w.manager.job("llm"))
		w.expectNothingHere(ctx, "llm")
	}, SpecTimeout(specTimeout))

	It("a TrainJob preempts in one worker alone", func(ctx context.Context) {
		w := newWorld(ctx, "8", "8")
		for _, s := range w.all() {
			s.Make(ctx, kit.Priority(s.Name("high"), 1000))
		}
		for _, worker := range w.workers() {
			worker.MakeRunning(ctx, worker.job("low"), 1, nil)
		}
		w.manager.Make(ctx, w.manager.job("urgent").Priority(w.manager.Name("high")).Obj())
		var preempted, left *site
		Eventually(ctx, func(g Gomega) {
			preempted, left = w.worker1, w.worker2
			if len(preempted.Pods(ctx, "urgent")) == 0 {
				preempted, left = left, preempted
			}
			g.Expect(preempted.Pods(ctx, "urgent")).To(HaveLen(1))
		}).Should(Succeed())
		w.eventuallyRunsOn(ctx, preempted, "urgent")
		w.expectNothingHere(ctx, "urgent")
		Expect(left.Pods(ctx, "low")).To(HaveLen(1))
		Expect(left.EventNotes(ctx, "TrainJob", "low", "Stopped")).To(BeEmpty())
	}, SpecTimeout(specTimeout))
})

// restartKueueWith sets fields of the configuration of a cluster's Kueue until the specs are over.
func restartKueueWith(ctx context.Context, c *world.Cluster, set map[string]any) {
	restore, err := c.RestartKueueWith(ctx, GinkgoWriter, set, "kueue")
	DeferCleanup(restore)
	Expect(err).NotTo(HaveOccurred())
}

// letReadQueues permits Kueue's manager cluster what it needs in a worker to add up quotas, as docs/multikueue.md says.
func letReadQueues(ctx context.Context, worker *world.Cluster) {
	meta := metav1.ObjectMeta{Name: "kueue-trainer-multikueue-queues"}
	for _, obj := range []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{kueue.SchemeGroupVersion.Group}, Resources: []string{"clusterqueues", "localqueues"}, Verbs: []string{"get", "list", "watch"},
		}}},
		kit.ClusterRoleBinding(meta.Name, meta.Name, kit.Account("kueue-system", "multikueue")),
	} {
		Expect(worker.Client.Create(ctx, obj)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(worker.Client.Delete(ctx, obj)).To(Succeed()) })
	}
}

func manageQuota(ctx context.Context, mode kueue.MultiKueueConfigQuotaManagementMode) {
	config := &kueue.MultiKueueConfig{ObjectMeta: metav1.ObjectMeta{Name: check}}
	Expect(world.TryChange(ctx, fleet.Manager.Client, config, func() { config.Spec.QuotaManagement = &mode })).To(Succeed())
}

func (s *site) quota(ctx context.Context) string {
	var cq kueue.ClusterQueue
	s.Read(ctx, &cq, s.Name("gpus"))
	return cq.Spec.ResourceGroups[0].Flavors[0].Resources[0].NominalQuota.String()
}
