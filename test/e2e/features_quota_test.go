// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
)

// docs/features.md names these specs: what Kueue does with quotas, done with TrainJobs.
var _ = Describe("TrainJobs in a cohort", func() {
	It("borrow up to the borrowing limit of their queue", func(ctx context.Context) {
		w := newWorld(ctx)
		borrower := w.member("team", "borrower", "0")
		gpuQuota(borrower).BorrowingLimit = new(resource.MustParse("8"))
		w.share(ctx, w.member("team", "lender", "16"), borrower)
		w.runsOn(ctx, "borrows", "borrower")
		w.MakePending(ctx, w.Job("exceeds").Queue("borrower").GPUs("8"))

		w.EditQueue(ctx, borrower.Name, func(cq *kueue.ClusterQueue) { gpuQuota(cq).BorrowingLimit = new(resource.MustParse("16")) })
		w.EventuallyRuns(ctx, "exceeds", 1, onH100)
	}, SpecTimeout(specTimeout))

	It("leave to a queue what it does not lend", func(ctx context.Context) {
		w := newWorld(ctx)
		lender := w.member("team", "lender", "16")
		gpuQuota(lender).LendingLimit = new(resource.MustParse("8"))
		w.share(ctx, lender, w.member("team", "borrower", "0"))
		w.runsOn(ctx, "borrows", "borrower")
		w.MakePending(ctx, w.Job("exceeds").Queue("borrower").GPUs("8"))
		w.runsOn(ctx, "owns", "lender")
	}, SpecTimeout(specTimeout))

	It("run on quota of cohorts above and beside their own", func(ctx context.Context) {
		w := newWorld(ctx)
		w.Make(ctx, w.cohort("company", "", "8"), w.cohort("research", "company", "0"), w.cohort("product", "company", "0"))
		w.share(ctx, w.member("research", "vision", "0"), w.member("product", "search", "8"))
		w.MakeRunning(ctx, w.Job("borrows").Queue("vision").Nodes(2).GPUs("8"), 2, onH100)
		w.MakePending(ctx, w.Job("exceeds").Queue("search").GPUs("8"))
		w.Finish(ctx, "borrows", "succeeded")
		w.EventuallyRuns(ctx, "exceeds", 1, onH100)
	}, SpecTimeout(specTimeout))
})

var _ = Describe("A TrainJob that is preempted stops, waits and resumes", func() {
	It("by a queue that reclaims what it lent", core, func(ctx context.Context) {
		w := newWorld(ctx)
		owner := w.member("team", "owner", "8")
		owner.Spec.Preemption.ReclaimWithinCohort = kueue.PreemptionPolicyAny
		w.share(ctx, owner, w.member("team", "victim", "0"))
		w.preempts(ctx, w.Job("claims").Queue("owner").GPUs("8"), 1, kueue.InCohortReclamationReason)
	}, SpecTimeout(specTimeout))

	It("by a queue that reclaims while it borrows", func(ctx context.Context) {
		w := newWorld(ctx)
		owner := w.member("team", "owner", "8")
		owner.Spec.Preemption.ReclaimWithinCohort = kueue.PreemptionPolicyLowerPriority
		owner.Spec.Preemption.BorrowWithinCohort = &kueue.BorrowWithinCohort{Policy: kueue.BorrowWithinCohortPolicyLowerPriority}
		w.share(ctx, owner, w.member("team", "idle", "8"), w.member("team", "victim", "0"))
		w.Make(ctx, kit.Priority(w.Name("urgent"), 1000))
		w.preempts(ctx, w.Job("claims").Queue("owner").Priority(w.Name("urgent")).Nodes(2).GPUs("8"), 2, kueue.InCohortReclaimWhileBorrowingReason)
	}, SpecTimeout(specTimeout))

	It("by one of the same priority that has waited for longer", func(ctx context.Context) {
		w := newWorld(ctx)
		gpus := w.member("team", "victim", "8")
		gpus.Spec.Preemption.WithinClusterQueue = kueue.PreemptionPolicyLowerOrNewerEqualPriority
		w.share(ctx, gpus)
		w.queues(ctx, w.Job("claims").Queue("victim").Nodes(2).GPUs("8"))
		w.eventuallyLaterThan(ctx, "claims")
		w.runsOn(ctx, "preempted", "victim")

		w.SetQuota(ctx, gpus.Name, "16")
		w.givesWay(ctx, 1, 2, kueue.InClusterQueueReason)
	}, SpecTimeout(specTimeout))
})

var _ = Describe("A TrainJob takes the next flavor of its queue", func() {
	It("before it preempts in the first", func(ctx context.Context) {
		w := newPools(ctx, "8", "8")
		w.EditQueue(ctx, w.Name("gpus"), func(cq *kueue.ClusterQueue) {
			cq.Spec.FlavorFungibility = &kueue.FlavorFungibility{WhenCanPreempt: kueue.TryNextFlavor}
		})
		w.runsOn(ctx, "first", "queue")
		w.MakeRunning(ctx, w.Job("urgent").Priority(w.Name("urgent")).GPUs("8"), 1, onA100, kit.Priority(w.Name("urgent"), 1000))
	}, SpecTimeout(specTimeout))

	It("before it borrows in the first", func(ctx context.Context) {
		w := newWorld(ctx)
		a100 := w.Flavor("a100", onA100)
		borrower := kit.ClusterQueue(w.Name("borrower"), kit.Quota{Flavor: w.Name("h100"), GPUs: "0"}, kit.Quota{Flavor: a100.Name, GPUs: "8"})
		borrower.Spec.CohortName = kueue.CohortReference(w.Name("team"))
		borrower.Spec.FlavorFungibility = &kueue.FlavorFungibility{WhenCanBorrow: kueue.TryNextFlavor}
		w.Make(ctx, a100)
		w.share(ctx, w.member("team", "lender", "8"), borrower)
		w.MakeRunning(ctx, w.Job("first").GPUs("8"), 1, onA100, kit.LocalQueue(w.Namespace, "queue", borrower.Name))
	}, SpecTimeout(specTimeout))
})

// member returns a ClusterQueue of a cohort, with GPUs of flavor h100.
func (w *site) member(cohort, name, gpus string) *kueue.ClusterQueue {
	cq := kit.ClusterQueue(w.Name(name), kit.Quota{Flavor: w.Name("h100"), GPUs: gpus})
	cq.Spec.CohortName = kueue.CohortReference(w.Name(cohort))
	return cq
}

// cohort returns a Cohort with GPUs of flavor h100; the parent of a root is "".
func (w *site) cohort(name, parent, gpus string) *kueue.Cohort {
	cohort := &kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: w.Name(name)}}
	if parent != "" {
		cohort.Spec.ParentName = kueue.CohortReference(w.Name(parent))
	}
	cohort.Spec.ResourceGroups = kit.ClusterQueue("", kit.Quota{Flavor: w.Name("h100"), GPUs: gpus}).Spec.ResourceGroups
	return cohort
}

// share makes flavor h100 and ClusterQueues of it, each with a LocalQueue of its short name.
func (w *site) share(ctx context.Context, queues ...*kueue.ClusterQueue) {
	w.Make(ctx, w.Flavor("h100", onH100))
	for _, cq := range queues {
		w.Make(ctx, cq, kit.LocalQueue(w.Namespace, strings.TrimSuffix(cq.Name, w.Name("")), cq.Name))
	}
}

func gpuQuota(cq *kueue.ClusterQueue) *kueue.ResourceQuota {
	return &cq.Spec.ResourceGroups[0].Flavors[0].Resources[0]
}

// runsOn makes a TrainJob of 8 GPUs in a LocalQueue, and waits until it runs on H100 nodes.
func (w *site) runsOn(ctx context.Context, job, queue string) {
	w.MakeRunning(ctx, w.Job(job).Queue(queue).GPUs("8"), 1, onH100)
}

// preempts has a TrainJob of so many pods come while another runs in LocalQueue victim, which gives way.
func (w *site) preempts(ctx context.Context, claims *kit.TrainJobBuilder, pods int, reason string) {
	w.runsOn(ctx, "preempted", "victim")
	w.Make(ctx, claims.Obj())
	w.givesWay(ctx, 1, pods, reason)
}

// givesWay waits until job "preempted" is stopped for job "claims" and that reason, and runs again when that has ended.
func (w *site) givesWay(ctx context.Context, preempted, claims int, reason string) {
	w.eventuallyTrue(ctx, "preempted", kueue.WorkloadPreempted, reason)
	w.EventuallyRuns(ctx, "claims", claims, onH100)
	w.EventuallyAtTheGate(ctx, "preempted")
	w.EventuallyPods(ctx, "preempted", 0)
	w.Finish(ctx, "claims", "succeeded")
	w.EventuallyRuns(ctx, "preempted", preempted, onH100)
}

// queues makes a TrainJob, and waits for its Workload: Kueue looks at none that is like another which does not fit.
func (w *site) queues(ctx context.Context, job *kit.TrainJobBuilder) {
	w.Make(ctx, job.Obj())
	w.EventuallyWorkload(ctx, job.Name)
}

// eventuallyLaterThan waits for the second after that in which a TrainJob came: Kueue compares no finer times.
func (w *site) eventuallyLaterThan(ctx context.Context, job string) {
	wl := w.Workload(ctx, job)
	Expect(wl).NotTo(BeNil())
	Eventually(ctx, time.Now).Should(BeTemporally(">=", wl.CreationTimestamp.Add(time.Second)), fmt.Sprintf("later than %s", job))
}
