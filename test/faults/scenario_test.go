// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"fmt"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// The TrainJobs of the scenarios.
const (
	low    = "low"
	high   = "high"
	staged = "staged"
)

// scenario is what people do in a run, and what comes of it.
type scenario struct {
	jobs  []string
	steps []step
	// restsAfter are the steps after which nothing is left to do until the next.
	restsAfter []int
}

// step is one thing that a user or an admin does, and what comes of it.
type step struct {
	name    string
	do      func(*run, context.Context)
	settled func(*run, context.Context, Gomega)
}

// The steps of preemption by number.
const (
	lowStarts = iota
	highPreempts
	flavorOpens
	bothFinish
)

// preemption: a job runs on flavor A, is preempted by another, resumes on flavor B, whose
// node labels and tolerations are different ones, and both finish.
var preemption = &scenario{
	jobs: []string{low, high},
	steps: []step{
		lowStarts:    {"low starts on A", (*run).createLow, (*run).lowRunsOnA},
		highPreempts: {"high preempts low", (*run).createHigh, (*run).highRunsLowWaits},
		flavorOpens:  {"B opens and low resumes there", (*run).openB, (*run).bothRun},
		bothFinish:   {"both finish", nothing, (*run).allIsOver},
	},
	restsAfter: []int{highPreempts, bothFinish},
}

// dependencies: a job whose training pod is made only when two downloads are done.
var dependencies = &scenario{
	jobs: []string{staged},
	steps: []step{
		{"the downloads start", (*run).createStaged, (*run).downloadsRun},
		{"the downloads are done and the training starts", (*run).finishDownloads, (*run).trainingRuns},
		{"the training ends", nothing, (*run).allIsOver},
	},
	restsAfter: []int{0, 1, 2},
}

func nothing(*run, context.Context) {}

// userEntry is the manager of the entry that the jobs' user writes.
const userEntry = "example.com/user"

var (
	gpuToleration  = corev1.Toleration{Key: string(kit.GPU), Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
	spotToleration = corev1.Toleration{Key: "example.com/spot", Operator: corev1.TolerationOpExists}
	// baseSelector is that of the jobs' pods without an admission.
	baseSelector = map[string]string{corev1.LabelOSStable: "linux"}
)

// runLabel marks the namespaces of runs.
const runLabel = "faults.kueue-trainer.dev/run"

// world makes what the scenario takes place in. Flavor A has a label key that B lacks,
// and B a toleration that A lacks. B repeats the users' own toleration: in-tree's entry
// drops the one that is not repeated, and no job would ever run there.
func (r *run) world(ctx context.Context) {
	r.suffix = rand.String(5)
	r.namespace = "faults-" + r.suffix
	r.Expect(r.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.namespace, Labels: map[string]string{runLabel: "true"}}})).To(Succeed())
	labelsOfB := map[string]string{kit.ProductLabel: kit.A100}
	if r.cluster.Integration == world.InTree {
		// It cannot do without: child Jobs keep the keys that B lacks, and never run there.
		labelsOfB[kit.FamilyLabel] = "ampere"
	}
	r.make(ctx,
		kit.Flavor(r.named("a"), map[string]string{kit.ProductLabel: kit.H100, kit.FamilyLabel: "hopper"}),
		kit.Flavor(r.named("b"), labelsOfB, gpuToleration, spotToleration),
		kit.Priority(r.named(low), 1), kit.Priority(r.named(high), 100),
		kit.ClusterQueue(r.named("gpus"), kit.Quota{Flavor: r.named("a"), GPUs: "8"}, kit.Quota{Flavor: r.named("b"), GPUs: "0"}),
		kit.LocalQueue(r.namespace, "queue", r.named("gpus")),
		kit.LocalQueue(r.namespace, "other", r.named("gpus")),
	)
}

// make creates objects that the run takes away at its end, again while a webhook is away.
func (r *run) make(ctx context.Context, objs ...client.Object) {
	for _, obj := range objs {
		r.eventually(ctx, func(g Gomega) {
			err := r.Create(ctx, obj)
			if !apierrors.IsAlreadyExists(err) {
				g.Expect(err).NotTo(HaveOccurred())
			}
		}, "creating %T %s", obj, obj.GetName())
		r.made = append(r.made, obj)
	}
}

func (r *run) named(name string) string { return name + "-" + r.suffix }

func (r *run) job(name string) *trainer.TrainJob { return r.jobOf(name, low, "node") }

// jobOf returns a job whose user patches the pods of some replicated jobs.
func (r *run) jobOf(name, priority string, replicatedJobs ...string) *trainer.TrainJob {
	job := kit.TrainJob(r.namespace, name).Queue("queue").Priority(r.named(priority)).GPUs("8")
	for _, rj := range replicatedJobs {
		job.PodPatch(userEntry+"-"+rj, rj, trainer.PodTemplatePatch{
			Metadata: &metav1.ObjectMeta{Annotations: map[string]string{"example.com/note": "keep"}},
			Spec:     &trainer.PodSpecPatch{NodeSelector: baseSelector, Tolerations: []corev1.Toleration{gpuToleration}},
		})
	}
	return job.Obj()
}

func (r *run) createLow(ctx context.Context)  { r.make(ctx, r.job(low)) }
func (r *run) createHigh(ctx context.Context) { r.make(ctx, r.jobOf(high, high, "node")) }

// The replicated jobs of Trainer's torchtune runtimes.
var (
	downloads = []string{"dataset-initializer", "model-initializer"}
	training  = "node"
)

func (r *run) createStaged(ctx context.Context) {
	job := r.jobOf(staged, low, append(downloads, training)...)
	job.Spec.RuntimeRef.Name = "torchtune-qwen2.5-1.5b"
	needs, err := r.cluster.Needs(ctx, r.namespace, job.Spec.RuntimeRef.Name)
	r.Expect(err).NotTo(HaveOccurred())
	r.make(ctx, needs...)
	job.Spec.Initializer = kit.TrainJob("", "").Initializers().Spec.Initializer
	r.make(ctx, job)
}

func (r *run) downloadsRun(ctx context.Context, g Gomega) {
	r.admitted(ctx, g, staged)
	r.podsIn(ctx, g, corev1.PodRunning, downloads...)
}

func (r *run) finishDownloads(ctx context.Context) {
	r.eventually(ctx, func(g Gomega) {
		r.finish(ctx, g, staged)
		r.podsIn(ctx, g, corev1.PodSucceeded, downloads...)
	}, "the downloads end")
}

func (r *run) trainingRuns(ctx context.Context, g Gomega) {
	r.admitted(ctx, g, staged)
	r.podsIn(ctx, g, corev1.PodRunning, training)
}

// podsIn: there is one pod of each replicated job of staged, in that phase.
func (r *run) podsIn(ctx context.Context, g Gomega, phase corev1.PodPhase, replicatedJobs ...string) {
	phases := map[string][]corev1.PodPhase{}
	for _, pod := range r.pods(ctx, g, staged) {
		rj := pod.Labels[jobsetapi.ReplicatedJobNameKey]
		phases[rj] = append(phases[rj], pod.Status.Phase)
	}
	for _, rj := range replicatedJobs {
		g.Expect(phases[rj]).To(Equal([]corev1.PodPhase{phase}), "pods of %s", rj)
	}
}

func (r *run) lowRunsOnA(ctx context.Context, g Gomega) {
	r.runs(ctx, g, low)
}

func (r *run) highRunsLowWaits(ctx context.Context, g Gomega) {
	r.runs(ctx, g, high)
	r.waits(ctx, g, low)
}

// openB makes room on flavor B for one job.
func (r *run) openB(ctx context.Context) {
	r.eventually(ctx, func(g Gomega) {
		var cq kueue.ClusterQueue
		g.Expect(r.Get(ctx, client.ObjectKey{Name: r.named("gpus")}, &cq)).To(Succeed())
		cq.Spec.ResourceGroups[0].Flavors[1].Resources[0].NominalQuota = resource.MustParse("8")
		g.Expect(r.Update(ctx, &cq)).To(Succeed())
	}, "opening flavor B")
}

func (r *run) bothRun(ctx context.Context, g Gomega) {
	r.runs(ctx, g, high)
	r.runs(ctx, g, low)
}

// allIsOver ends the pods that are there, since a fault may have brought new ones.
func (r *run) allIsOver(ctx context.Context, g Gomega) {
	for _, name := range r.plan.scenario.jobs {
		r.finish(ctx, g, name)
	}
	for _, name := range r.plan.scenario.jobs {
		wl := r.workload(ctx, g, name)
		g.Expect(wl).NotTo(BeNil(), "the Workload of %s", name)
		g.Expect(apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadFinished)).To(BeTrue(), "the Workload of %s is finished", name)
		g.Expect(wl.Finalizers).To(BeEmpty(), "finalizers of the Workload of %s", name)
	}
	var cq kueue.ClusterQueue
	g.Expect(r.Get(ctx, client.ObjectKey{Name: r.named("gpus")}, &cq)).To(Succeed())
	g.Expect(cq.Status.ReservingWorkloads).To(BeZero(), "Workloads that hold quota")
}

// finish lets the pods of a job succeed.
func (r *run) finish(ctx context.Context, g Gomega, job string) {
	for _, pod := range r.pods(ctx, g, job) {
		before := pod.DeepCopy()
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, "localcluster/finish", "succeeded")
		g.Expect(client.IgnoreNotFound(r.Patch(ctx, &pod, client.MergeFrom(before)))).To(Succeed())
	}
}

// runs: exactly one pod, bound and running, and the job says so.
func (r *run) runs(ctx context.Context, g Gomega, name string) {
	pods := r.pods(ctx, g, name)
	g.Expect(pods).To(HaveLen(1), "pods of %s", name)
	g.Expect(pods[0].DeletionTimestamp).To(BeNil(), "pod of %s is going", name)
	g.Expect(pods[0].Status.Phase).To(Equal(corev1.PodRunning), "pod of %s", name)
	r.admitted(ctx, g, name)
}

func (r *run) admitted(ctx context.Context, g Gomega, name string) {
	wl := r.workload(ctx, g, name)
	g.Expect(wl).NotTo(BeNil(), "the Workload of %s", name)
	g.Expect(apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadAdmitted)).To(BeTrue(), "the Workload of %s is admitted", name)
}

// waits: suspended, without quota and without pods.
func (r *run) waits(ctx context.Context, g Gomega, name string) {
	wl := r.workload(ctx, g, name)
	g.Expect(wl).NotTo(BeNil(), "the Workload of %s", name)
	g.Expect(wl.Status.Admission).To(BeNil(), "quota of %s", name)
	g.Expect(r.pods(ctx, g, name)).To(BeEmpty(), "pods of %s", name)
	var job trainer.TrainJob
	g.Expect(r.Get(ctx, client.ObjectKey{Namespace: r.namespace, Name: name}, &job)).To(Succeed())
	g.Expect(ptr.Deref(job.Spec.Suspend, false)).To(BeTrue(), "%s is suspended", name)
}

func (r *run) pods(ctx context.Context, g Gomega, job string) []corev1.Pod {
	var list corev1.PodList
	g.Expect(r.List(ctx, &list, client.InNamespace(r.namespace), client.MatchingLabels{jobsetapi.JobSetNameKey: job})).To(Succeed())
	return list.Items
}

// workload returns the Workload of a TrainJob, or nil.
func (r *run) workload(ctx context.Context, g Gomega, job string) *kueue.Workload {
	var list kueue.WorkloadList
	g.Expect(r.List(ctx, &list, client.InNamespace(r.namespace))).To(Succeed())
	for i := range list.Items {
		if owner := metav1.GetControllerOf(&list.Items[i]); owner != nil && owner.Name == job {
			return &list.Items[i]
		}
	}
	return nil
}

// touch makes an event on every TrainJob that changes nothing.
func (r *run) touch(ctx context.Context) {
	for _, name := range r.plan.scenario.jobs {
		r.eventually(ctx, func(g Gomega) {
			job := kit.TrainJob(r.namespace, name).Obj()
			patch := fmt.Sprintf(`{"metadata":{"annotations":{"example.com/touched":%q}}}`, time.Now().Format(time.StampMilli))
			g.Expect(r.Patch(ctx, job, client.RawPatch("application/merge-patch+json", []byte(patch)))).To(Succeed())
		}, "touching %s", name)
	}
}
