// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"fmt"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// The TrainJobs of the scenarios.
const low, high, staged = "low", "high", "staged"

type scenario struct {
	jobs  []string
	steps []step
}

type step struct {
	name    string
	do      func(*run, context.Context)
	settled func(*run, context.Context)
	// rests: nothing is left to do until the next step.
	rests bool
}

// The steps of preemption by number.
const (
	lowStarts = iota
	highPreempts
	flavorOpens
	bothFinish
)

// preemption: a job runs on flavor A, is preempted, resumes on flavor B with other labels and tolerations, and ends.
var preemption = &scenario{
	jobs: []string{low, high},
	steps: []step{
		lowStarts:    {name: "low starts on A", do: (*run).submitLow, settled: allRun(low)},
		highPreempts: {name: "high preempts low", do: (*run).submitHigh, settled: (*run).highRunsLowWaits, rests: true},
		flavorOpens:  {name: "B opens and low resumes there", do: (*run).openB, settled: allRun(high, low)},
		bothFinish:   {name: "both finish", do: nothing, settled: (*run).allIsOver, rests: true},
	},
}

// dependencies: a job whose training pod is made only when two downloads are done.
var dependencies = &scenario{
	jobs: []string{staged},
	steps: []step{
		{name: "the downloads start", do: (*run).submitStaged, settled: stagedRuns(downloads...), rests: true},
		{name: "the downloads are done and the training starts", do: (*run).finishDownloads, settled: stagedRuns(training), rests: true},
		{name: "the training ends", do: nothing, settled: (*run).allIsOver, rests: true},
	},
}

func nothing(*run, context.Context) {}

// baseSelector is that of the jobs' pods without an admission.
var baseSelector = map[string]string{corev1.LabelOSStable: "linux"}

// makePools makes what the scenario takes place in. Flavor A has a label key that B lacks,
// and B a toleration that A lacks. B repeats the users' own toleration: in-tree's entry
// drops the one that is not repeated, and no job would ever run there.
func (r *run) makePools(ctx context.Context) {
	labelsOfB := map[string]string{kit.ProductLabel: kit.A100}
	if r.cluster.Integration == world.InTree {
		// It cannot do without: child Jobs keep the keys that B lacks, and never run there.
		labelsOfB[kit.FamilyLabel] = "ampere"
	}
	r.Make(ctx,
		kit.Flavor(r.Name("a"), map[string]string{kit.ProductLabel: kit.H100, kit.FamilyLabel: "hopper"}),
		kit.Flavor(r.Name("b"), labelsOfB, kit.GPUToleration(), corev1.Toleration{Key: "example.com/spot", Operator: corev1.TolerationOpExists}),
		kit.Priority(r.Name(low), 1), kit.Priority(r.Name(high), 100),
		kit.ClusterQueue(r.Name("gpus"), kit.Quota{Flavor: r.Name("a"), GPUs: "8"}, kit.Quota{Flavor: r.Name("b"), GPUs: "0"}),
		r.LocalQueue(),
		kit.LocalQueue(r.Namespace, "other", r.Name("gpus")),
	)
}

func (r *run) job(name, priority string, replicatedJobs ...string) *kit.TrainJobBuilder {
	job := r.Job(name).Priority(r.Name(priority)).GPUs("8")
	for _, rj := range replicatedJobs {
		job.PodPatch("example.com/user-"+rj, rj, trainer.PodTemplatePatch{
			Metadata: &metav1.ObjectMeta{Annotations: map[string]string{"example.com/note": "keep"}},
			Spec:     &trainer.PodSpecPatch{NodeSelector: baseSelector, Tolerations: []corev1.Toleration{kit.GPUToleration()}},
		})
	}
	return job
}

func (r *run) submit(ctx context.Context, job *kit.TrainJobBuilder) {
	r.Eventually(ctx, func() error { return client.IgnoreAlreadyExists(r.Create(ctx, job.Obj())) }).Should(Succeed(), "creating TrainJob %s", job.Name)
}

func (r *run) submitLow(ctx context.Context)  { r.submit(ctx, r.job(low, low, training)) }
func (r *run) submitHigh(ctx context.Context) { r.submit(ctx, r.job(high, high, training)) }

// The replicated jobs of Trainer's torchtune runtimes.
var (
	downloads = []string{"dataset-initializer", "model-initializer"}
	training  = "node"
)

func (r *run) submitStaged(ctx context.Context) {
	job := r.job(staged, low, append(downloads, training)...).Runtime("torchtune-qwen2.5-1.5b").Initializers()
	r.MakeNeeds(ctx, job.Spec.RuntimeRef.Name)
	r.submit(ctx, job)
}

func stagedRuns(replicatedJobs ...string) func(*run, context.Context) {
	return func(r *run, ctx context.Context) {
		r.EventuallyCondition(ctx, staged, kueue.WorkloadAdmitted)
		r.Eventually(ctx, func(g Gomega) { r.podsIn(ctx, g, corev1.PodRunning, replicatedJobs...) }).Should(Succeed())
	}
}

func (r *run) finishDownloads(ctx context.Context) {
	r.Eventually(ctx, func(g Gomega) {
		r.Finish(ctx, staged, "succeeded")
		r.podsIn(ctx, g, corev1.PodSucceeded, downloads...)
	}).Should(Succeed())
}

// podsIn: there is one pod of each replicated job of staged, in that phase.
func (r *run) podsIn(ctx context.Context, g Gomega, phase corev1.PodPhase, replicatedJobs ...string) {
	for _, rj := range replicatedJobs {
		g.Expect(world.OfReplicatedJob(r.Pods(ctx, staged), rj)).To(ConsistOf(HaveField("Status.Phase", phase)), "pods of %s", rj)
	}
}

// allRun: each has exactly one pod, bound and running, and quota.
func allRun(jobs ...string) func(*run, context.Context) {
	return func(r *run, ctx context.Context) {
		for _, job := range jobs {
			r.EventuallyRuns(ctx, job, 1, nil)
			r.EventuallyCondition(ctx, job, kueue.WorkloadAdmitted)
		}
	}
}

func (r *run) highRunsLowWaits(ctx context.Context) {
	allRun(high)(r, ctx)
	r.EventuallyWorkload(ctx, low, HaveField("Status.Admission", BeNil()))
	r.EventuallyPods(ctx, low, 0)
	r.EventuallyIs(ctx, &trainer.TrainJob{}, low, HaveField("Spec.Suspend", HaveValue(BeTrue())))
}

func (r *run) openB(ctx context.Context) {
	r.EditQueue(ctx, r.Name("gpus"), func(cq *kueue.ClusterQueue) {
		cq.Spec.ResourceGroups[0].Flavors[1].Resources[0].NominalQuota = resource.MustParse("8")
	})
}

// allIsOver ends the pods that are there, since a fault may have brought new ones.
func (r *run) allIsOver(ctx context.Context) {
	r.Eventually(ctx, func(g Gomega) {
		for _, name := range r.plan.scenario.jobs {
			r.Finish(ctx, name, "succeeded")
		}
		for _, name := range r.plan.scenario.jobs {
			g.Expect(r.Workload(ctx, name)).To(And(world.True(kueue.WorkloadFinished), HaveField("Finalizers", BeEmpty())), "the Workload of %s", name)
		}
	}).Should(Succeed())
	r.EventuallyIs(ctx, &kueue.ClusterQueue{}, r.Name("gpus"), HaveField("Status.ReservingWorkloads", BeZero()))
}

// touch makes an event on every TrainJob that changes nothing.
func (r *run) touch(ctx context.Context) {
	patch := fmt.Sprintf(`{"metadata":{"annotations":{"example.com/touched":%q}}}`, time.Now().Format(time.StampMilli))
	for _, name := range r.plan.scenario.jobs {
		r.Eventually(ctx, func() error { return r.merge(ctx, r.Job(name).Obj(), patch) }).Should(Succeed(), "touching %s", name)
	}
}

func (r *run) merge(ctx context.Context, obj client.Object, patch string, opts ...client.PatchOption) error {
	return r.Patch(ctx, obj, client.RawPatch(types.MergePatchType, []byte(patch)), opts...)
}
