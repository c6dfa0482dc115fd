// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"math/rand"
	"slices"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

var _ = Describe("Thirty TrainJobs, while managers of all clusters are restarted at random", Serial, long, func() {
	It("all complete, each in one worker at a time", func(ctx context.Context) {
		const count = 30
		random := rand.New(rand.NewSource(GinkgoRandomSeed()))
		w := newWorld(ctx, "16", "16")
		for i := range count {
			w.manager.Make(ctx, w.manager.job(fmt.Sprintf("llm-%d", i)).PodAnnotations("example.com/me", "localcluster/run-for", "2s", "node").Obj())
		}
		sites := w.all()
		for over, next := 0, 0; over < count; {
			s := sites[random.Intn(len(sites))]
			component := []string{"kueue", s.Cluster.Manager()}[random.Intn(2)]
			GinkgoWriter.Printf("%d are over, restarting %s of %s\n", over, component, s.Cluster.Name)
			Expect(s.Cluster.Control(ctx, "restart", component, GinkgoWriter)).To(Succeed())
			next = min(over+count/10, count)
			Eventually(ctx, func(g Gomega) {
				if two := w.twoRuns(ctx); len(two) > 0 {
					StopTrying("TrainJobs with pods in both workers").Attach("jobs", two).Now()
				}
				var failed int
				if over, failed = w.ended(ctx); failed > 0 {
					StopTrying("a TrainJob failed").Now()
				}
				g.Expect(over).To(BeNumerically(">=", next))
			}).WithTimeout(specTimeout).Should(Succeed())
		}
		for _, worker := range w.workers() {
			worker.EventuallyEmpty(ctx)
		}
		for _, s := range sites {
			s.eventuallyFree(ctx)
		}
		Expect(w.manager.podsOfAll(ctx)).To(BeEmpty())
	}, SpecTimeout(4*specTimeout))
})

// twoRuns names the TrainJobs whose pods run in both workers.
func (w *sites) twoRuns(ctx context.Context) []string {
	// A run that ends there before one begins here is none of two.
	in1, in2 := jobsOf(w.worker1.podsOfAll(ctx)), jobsOf(w.worker2.podsOfAll(ctx))
	still := jobsOf(w.worker1.podsOfAll(ctx))
	return in1.Intersection(in2).Intersection(still).UnsortedList()
}

func jobsOf(pods []corev1.Pod) sets.Set[string] {
	names := sets.New[string]()
	for i := range pods {
		names.Insert(pods[i].Labels[jobsetapi.JobSetNameKey])
	}
	return names
}

// podsOfAll returns the pods of all TrainJobs that have not ended.
func (s *site) podsOfAll(ctx context.Context) []corev1.Pod {
	list := world.All(ctx, Default, s, &corev1.PodList{}, client.InNamespace(s.Namespace), client.HasLabels{jobsetapi.JobSetNameKey})
	return slices.DeleteFunc(list.Items, ended)
}

// ended counts the TrainJobs of the manager cluster that have ended.
func (w *sites) ended(ctx context.Context) (complete, failed int) {
	list := world.All(ctx, Default, w.manager, &trainer.TrainJobList{}, client.InNamespace(w.manager.Namespace))
	for i := range list.Items {
		conditions := list.Items[i].Status.Conditions
		if apimeta.IsStatusConditionTrue(conditions, trainer.TrainJobComplete) {
			complete++
		}
		if apimeta.IsStatusConditionTrue(conditions, trainer.TrainJobFailed) {
			failed++
		}
	}
	return complete, failed
}

// eventuallyFree waits until the spec's ClusterQueue has all its quota.
func (s *site) eventuallyFree(ctx context.Context) {
	Eventually(ctx, func(g Gomega) {
		cq := world.Found(ctx, g, s, &kueue.ClusterQueue{}, client.ObjectKey{Name: s.Name("gpus")})
		for _, flavor := range cq.Status.FlavorsReservation {
			for _, resource := range flavor.Resources {
				g.Expect(resource.Total.IsZero()).To(BeTrue(), "%s %s of flavor %s in %s", resource.Total.String(), resource.Name, flavor.Name, s.Cluster.Name)
			}
		}
	}).Should(Succeed())
}
