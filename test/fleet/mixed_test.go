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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// A fleet whose clusters migrate one after the other is mixed for some time.
var _ = Describe("In a fleet where not every cluster has kueue-trainer", Serial, Ordered, long, func() {
	handOver := func(ctx context.Context, c *world.Cluster, integration string) {
		Expect(c.HandOver(ctx, integration, GinkgoWriter)).To(Succeed())
	}
	runsAndEnds := func(ctx context.Context, w *sites) {
		w.runsAsAsked(ctx, w.worker1)
		w.ends(ctx, w.worker1, "llm")
		w.worker1.EventuallyEmpty(ctx)
	}
	// runsOnThenNext ends "llm", of which no pod but the known one ran, and then "next".
	runsOnThenNext := func(ctx context.Context, w *sites, pod types.UID, to string) {
		Consistently(ctx, func() []corev1.Pod { return w.worker1.Pods(ctx, "llm") }).Should(
			ConsistOf(And(HaveField("UID", pod), HaveField("Status.Phase", corev1.PodRunning))), to)
		w.ends(ctx, w.worker1, "llm")
		w.eventuallyRunsOn(ctx, w.worker1, "next")
		w.ends(ctx, w.worker1, "next")
	}
	AfterAll(func(ctx context.Context) {
		handOver(ctx, fleet.Manager, world.External)
		handOver(ctx, fleet.Workers[0], world.External)
	})

	It("a TrainJob of its manager runs in a worker with Kueue's in-tree integration", func(ctx context.Context) {
		handOver(ctx, fleet.Workers[0], world.InTree)
		runsAndEnds(ctx, newWorld(ctx, "8", "0"))
	}, SpecTimeout(2*specTimeout))

	It("a TrainJob runs on in a worker that migrates to kueue-trainer, and in one that migrates back", func(ctx context.Context) {
		handOver(ctx, fleet.Workers[0], world.InTree)
		for _, to := range []string{world.External, world.InTree} {
			w, pod := newRunning(ctx)
			handOver(ctx, fleet.Workers[0], to)
			w.manager.Make(ctx, w.manager.job("next").Obj())
			runsOnThenNext(ctx, w, pod.UID, to)
		}
	}, SpecTimeout(3*specTimeout))

	It("a TrainJob that runs elsewhere runs on, and one that waits there starts, when their manager migrates", func(ctx context.Context) {
		handOver(ctx, fleet.Workers[0], world.External)
		handOver(ctx, fleet.Manager, world.External)
		for _, to := range []string{world.InTree, world.External} {
			w, pod := newRunning(ctx)
			w.manager.Make(ctx, w.manager.job("next").Obj())
			w.manager.EventuallyCondition(ctx, "next", kueue.WorkloadQuotaReserved)
			handOver(ctx, fleet.Manager, to)
			runsOnThenNext(ctx, w, pod.UID, to)
		}
	}, SpecTimeout(3*specTimeout))

	It("a TrainJob of a manager with Kueue's in-tree integration runs in its worker", func(ctx context.Context) {
		handOver(ctx, fleet.Workers[0], world.External)
		handOver(ctx, fleet.Manager, world.InTree)
		runsAndEnds(ctx, newWorld(ctx, "8", "0"))
	}, SpecTimeout(2*specTimeout))

	It("a TrainJob of a manager with Kueue's in-tree integration carries what an admission check of its worker says", func(ctx context.Context) {
		handOver(ctx, fleet.Workers[0], world.External)
		handOver(ctx, fleet.Manager, world.InTree)
		w := newWorld(ctx, "8", "0")
		w.worker1.expectCarriesWhatACheckSays(ctx, w)
	}, SpecTimeout(2*specTimeout))
})

// FLEET_WORKERS=external:2.2,external:2.1 has the workers run older releases than the manager cluster.
var _ = DescribeTable("Whatever release of Trainer a worker has, a TrainJob of the same runtime runs there, with its placement", func(ctx context.Context, gpus1, gpus2 string) {
	w := newWorld(ctx, gpus1, gpus2)
	worker := map[string]*site{"8": w.worker1, "0": w.worker2}[gpus1]
	// Each release ships its own.
	var same trainer.TrainingRuntimeSpec
	runtime := w.manager.MakeRuntime(ctx, "torch-distributed", func(spec *trainer.TrainingRuntimeSpec) { same = *spec.DeepCopy() })
	worker.MakeRuntime(ctx, "torch-distributed", func(spec *trainer.TrainingRuntimeSpec) { *spec = same })
	w.makeRunning(ctx, worker, w.manager.job("llm").Runtime(runtime))
	w.expectNothingHere(ctx, "llm")
	w.ends(ctx, worker, "llm")
	worker.EventuallyEmpty(ctx)
},
	Entry("in the first one", "8", "0", SpecTimeout(specTimeout)),
	Entry("in the second one", "0", "8", SpecTimeout(specTimeout)),
)

var _ = It("Thirty TrainJobs, while managers of all clusters are restarted at random all complete, each in one worker at a time", Serial, long, func(ctx context.Context) {
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
			over = w.complete(ctx)
			g.Expect(over).To(BeNumerically(">=", next))
		}).WithTimeout(specTimeout).Should(Succeed())
	}
	for _, worker := range w.workers() {
		worker.EventuallyEmpty(ctx)
	}
	for _, s := range sites {
		s.EventuallyIs(ctx, &kueue.ClusterQueue{}, s.Name("gpus"), HaveField("Status.ReservingWorkloads", BeZero()))
	}
	Expect(w.manager.podsOfAll(ctx)).To(BeEmpty())
}, SpecTimeout(4*specTimeout))

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

func (s *site) podsOfAll(ctx context.Context) []corev1.Pod {
	list := world.All(ctx, Default, s, &corev1.PodList{}, client.InNamespace(s.Namespace), client.HasLabels{jobsetapi.JobSetNameKey})
	return slices.DeleteFunc(list.Items, ended)
}

// complete counts the TrainJobs of the manager cluster that are complete, none of which may fail.
func (w *sites) complete(ctx context.Context) (n int) {
	for _, job := range world.All(ctx, Default, w.manager, &trainer.TrainJobList{}, client.InNamespace(w.manager.Namespace)).Items {
		if apimeta.IsStatusConditionTrue(job.Status.Conditions, trainer.TrainJobFailed) {
			StopTrying("TrainJob " + job.Name + " failed").Now()
		}
		if apimeta.IsStatusConditionTrue(job.Status.Conditions, trainer.TrainJobComplete) {
			n++
		}
	}
	return n
}
