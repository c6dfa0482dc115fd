// SPDX-License-Identifier: Apache-2.0

// Package monitoring asks a real Prometheus, which scrapes the managers of a local control plane,
// everything that dashboards and alerts ask. `make monitoring-test` builds it and runs this.
package monitoring

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/specs"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// localDir is the LOCAL_DIR of the cluster that the suite brings up. That of `make local-up` is left alone.
const localDir = ".local-monitoring"

var churnFor = flag.Duration("churn", 3*time.Minute, "how long jobs come and go before the manager is killed")

var (
	cluster *world.Cluster
	root    string
)

func TestMonitoring(t *testing.T) { specs.Run(t, "kueue-trainer monitoring", time.Minute) }

var _ = BeforeSuite(func(ctx context.Context) {
	root = specs.Root()
	cluster = specs.Must(world.Open(ctx, localDir, GinkgoWriter))
	Expect(cluster.Local()).To(BeTrue(), "the managers of %s are no processes of make local-up", cluster.Kubeconfig)
})

var _ = AfterSuite(func(ctx context.Context) {
	if cluster != nil {
		Expect(cluster.Stop(ctx, GinkgoWriter)).To(Succeed())
	}
})

// The teams, and the queue that each has. Pools are the flavors h100 and a100.
const (
	vision   = "vision"
	language = "language"
	queue    = "gpus"
	// broken is a queue for what does not run.
	broken = "broken"
)

// makeTeams makes what jobs are queued in, until the specs are over.
func makeTeams(ctx context.Context) *world.World {
	w := world.New(ctx, Default, GinkgoWriter, cluster, "monitoring", world.NewSuffix())
	DeferCleanup(func(ctx context.Context) {
		// It starts what was killed, and writes both configurations again.
		Expect(cluster.Repair(ctx, GinkgoWriter)).To(Succeed())
		endAll(ctx)
		w.Unmake(ctx)
		for _, team := range []string{vision, language} {
			Expect(cluster.Client.Delete(ctx, kit.Namespace(team))).To(Succeed())
		}
	})
	w.Make(ctx,
		kit.Flavor("h100", map[string]string{kit.ProductLabel: kit.H100}),
		kit.Flavor("a100", map[string]string{kit.ProductLabel: kit.A100}),
		kit.ClusterQueue("gpus", kit.Quota{Flavor: "h100", GPUs: "32"}, kit.Quota{Flavor: "a100", GPUs: "16"}),
		kit.Priority("low", 1), kit.Priority("high", 100),
		kit.Namespace(vision), kit.LocalQueue(vision, queue, "gpus"), kit.LocalQueue(vision, broken, "gpus"),
		kit.Namespace(language), kit.LocalQueue(language, queue, "gpus"))
	return w
}

func endAll(ctx context.Context) {
	for _, team := range []string{vision, language} {
		Expect(cluster.Client.DeleteAllOf(ctx, &trainer.TrainJob{}, client.InNamespace(team))).To(Succeed())
	}
	Eventually(ctx, func(g Gomega) {
		workloads := world.All(ctx, g, cluster.Client, &kueue.WorkloadList{})
		g.Expect(workloads.Items).To(BeEmpty())
	}).Should(Succeed())
}

func control(ctx context.Context, action, component string) {
	Expect(cluster.Control(ctx, action, component, GinkgoWriter)).To(Succeed())
}

// churn has jobs of both teams come, run for seconds and go, more than the pools take at a time. Every
// fourth is urgent, and one in ten is deleted. It ends when stop is called, and waits for what it does.
func churn(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Go(func() {
		defer GinkgoRecover()
		i := 0
		wait.UntilWithContext(ctx, func(ctx context.Context) {
			if waiting(ctx) < 4 {
				// While the manager is killed nobody can create one.
				_ = cluster.Client.Create(ctx, churnJob(i))
			}
			if i++; i%10 == 0 {
				deleteOneThatRuns(ctx)
			}
		}, time.Second)
	})
	return func() {
		cancel()
		group.Wait()
	}
}

func churnJob(i int) client.Object {
	team, priority, nodes := vision, "low", int32(1+i%2)
	if i%3 == 1 {
		team = language
	}
	if i%4 == 3 {
		priority = "high"
	}
	return kit.TrainJob(team, fmt.Sprintf("job-%d", i)).Queue(queue).Priority(priority).Nodes(nodes).GPUs("8").
		PodAnnotations("example.com/churn", "localcluster/run-for", fmt.Sprintf("%ds", 5+i%7*2), "node").Obj()
}

// deleteOneThatRuns has a user delete a TrainJob in the middle of its run, if there is one.
func deleteOneThatRuns(ctx context.Context) {
	var jobs trainer.TrainJobList
	if err := cluster.Client.List(ctx, &jobs, client.InNamespace(vision)); err != nil {
		return
	}
	for i := range jobs.Items {
		for _, status := range jobs.Items[i].Status.JobsStatus {
			if ptr.Deref(status.Ready, 0) > 0 {
				_ = cluster.Client.Delete(ctx, &jobs.Items[i])
				return
			}
		}
	}
}

// waiting counts the Workloads of the teams that are not admitted.
func waiting(ctx context.Context) int {
	var workloads kueue.WorkloadList
	if err := cluster.Client.List(ctx, &workloads); err != nil {
		return 0
	}
	return len(slices.DeleteFunc(workloads.Items, func(wl kueue.Workload) bool { return wl.Status.Admission != nil }))
}

// makeStuck makes a TrainJob that brings along a Workload that does not exist.
func makeStuck(ctx context.Context) {
	job := kit.TrainJob(vision, "stuck").Queue(broken).GPUs("8")
	job.Labels["kueue.x-k8s.io/prebuilt-workload-name"] = "does-not-exist"
	Expect(cluster.Client.Create(ctx, job.Obj())).To(Succeed())
}

// makeUnschedulable makes a TrainJob that is admitted, and whose pods fit on no node.
func makeUnschedulable(ctx context.Context) {
	Expect(cluster.Client.Create(ctx, kit.TrainJob(vision, "nowhere").Queue(broken).Priority("high").GPUs("8").
		PodPatch("example.com/nowhere", "node", trainer.PodTemplatePatch{
			Spec: &trainer.PodSpecPatch{NodeSelector: map[string]string{"example.com/nowhere": "true"}},
		}).Obj())).To(Succeed())
}

// refused reports whether the API server refuses a TrainJob because it does not reach the manager.
func refused(ctx context.Context) bool {
	err := cluster.Client.Create(ctx, kit.TrainJob(vision, "refused").Queue(queue).GPUs("8").Obj(), client.DryRunAll)
	return apierrors.IsInternalError(err)
}
