// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
	"github.com/kueue-trainer/kueue-trainer/test/record"
)

var (
	churnKills = flag.Int("churn.kills", 6, "times that the manager is killed in the churn")
	churnJobs  = flag.Int("churn.jobs", 12, "TrainJobs in the churn")
)

var _ = It("Killed at random the manager loses no TrainJob, restarts no pod and leaves nothing behind", Label("control"), Serial, core, long, Label("invariant", "crash-safe"), func(ctx context.Context) {
	w := newPools(ctx, "16", "16")
	w.Make(ctx, kit.Priority(w.Name("low"), 1), kit.Priority(w.Name("high"), 100))
	DeferCleanup(repair)

	pods := w.record(ctx, podResource)
	busy := 0
	var group sync.WaitGroup
	for i := range *churnJobs {
		if i == *churnJobs/2 {
			// By now jobs run and others wait; the rest comes in between the kills.
			group.Go(func() {
				defer GinkgoRecover()
				busy = w.churn(ctx)
			})
		}
		w.eventuallyCreate(ctx, w.churnJob(i))
	}
	for i := range *churnJobs {
		w.eventuallyFinished(ctx, fmt.Sprintf("job-%d", i))
	}
	group.Wait()
	Eventually(ctx, pods.CaughtUp).Should(Succeed())
	Expect(busy).To(BeNumerically(">=", max(1, *churnKills/6)), "kills while jobs ran and others waited")

	for i := range *churnJobs {
		name := fmt.Sprintf("job-%d", i)
		Expect(boundPods(pods, name)).To(BeNumerically("<=", 1+evictions(w.Workload(ctx, name))), "pods that %s ever had, one per admission", name)
		for _, pod := range w.Pods(ctx, name) {
			Expect(pod.Spec.SchedulingGates).To(BeEmpty(), pod.Name)
		}
	}
	w.EventuallyIs(ctx, &kueue.ClusterQueue{}, w.Name("gpus"), HaveField("Status.ReservingWorkloads", BeZero()))
}, SpecTimeout(30*time.Minute))

// churn kills the manager again and again, and now and then restarts what it works with,
// until no job waits any more. It gives how many kills came while jobs ran and others waited.
func (w *site) churn(ctx context.Context) (busy int) {
	others := []string{"kueue", "trainer", "jobset", "kube-apiserver"}
	for i := range *churnKills {
		if !w.eventuallyBusy(ctx) {
			return busy
		}
		select {
		// How long it goes on is what is random here; nothing waits for a condition.
		case <-time.After(rand.N(3 * time.Second)):
		case <-ctx.Done():
			return busy
		}
		control(ctx, "kill", cluster.Manager())
		if running, waiting := w.busy(ctx); running && waiting {
			busy++
		}
		if i%3 == 2 {
			control(ctx, "restart", others[(i/3)%len(others)])
		}
		control(ctx, "start", cluster.Manager())
	}
	return busy
}

// eventuallyBusy waits until the manager leads again and has started jobs. False means that no job waits any more.
func (w *site) eventuallyBusy(ctx context.Context) bool {
	var running, waiting bool
	Eventually(ctx, func() bool {
		running, waiting = w.busy(ctx)
		return running || !waiting
	}).Should(BeTrue(), "jobs run, or none waits")
	return waiting
}

// busy reports whether TrainJobs of the spec run and whether some wait.
func (w *site) busy(ctx context.Context) (running, waiting bool) {
	var jobs trainer.TrainJobList
	Eventually(ctx, func() error { return w.List(ctx, &jobs, client.InNamespace(w.Namespace)) }).Should(Succeed())
	for _, job := range jobs.Items {
		running = running || (!finished(&job) && !ptr.Deref(job.Spec.Suspend, false))
		waiting = waiting || (!finished(&job) && ptr.Deref(job.Spec.Suspend, false))
	}
	return running, waiting
}

func (w *site) churnJob(i int) *trainer.TrainJob {
	priority := "low"
	if i%3 == 2 {
		priority = "high"
	}
	return w.Job(fmt.Sprintf("job-%d", i)).GPUs("8").Priority(w.Name(priority)).
		PodAnnotations("example.com/churn", "localcluster/run-for", fmt.Sprintf("%ds", 3+i%4), "node").Obj()
}

// eventuallyCreate creates a job as soon as API server and webhooks answer.
func (w *site) eventuallyCreate(ctx context.Context, job *trainer.TrainJob) {
	Eventually(ctx, func() error { return client.IgnoreAlreadyExists(w.Create(ctx, job.DeepCopy())) }).Should(Succeed())
}

func (w *site) eventuallyFinished(ctx context.Context, name string) {
	Eventually(ctx, func(g Gomega) {
		job := world.Found(ctx, g, w, &trainer.TrainJob{}, client.ObjectKey{Namespace: w.Namespace, Name: name})
		g.Expect(finished(job)).To(BeTrue(), name)
	}).WithTimeout(5 * time.Minute).Should(Succeed())
	w.EventuallyCondition(ctx, name, kueue.WorkloadFinished)
}

// evictions counts how often Kueue took a Workload's quota back.
func evictions(wl *kueue.Workload) int {
	count := 0
	if wl.Status.SchedulingStats != nil {
		for _, e := range wl.Status.SchedulingStats.Evictions {
			count += int(e.Count)
		}
	}
	return count
}

// boundPods counts the pods that a job ever had on a node.
func boundPods(recorded *record.Recorder, job string) int {
	seen := sets.New[types.UID]()
	for _, pod := range versionsOf[corev1.Pod](recorded) {
		if pod.Spec.NodeName != "" && pod.Labels[jobsetapi.JobSetNameKey] == job {
			seen.Insert(pod.UID)
		}
	}
	return len(seen)
}
