// SPDX-License-Identifier: Apache-2.0

// Package work is what the benchmarks of one cluster and of a fleet share: a queue, and TrainJobs in it.
// What fails ends the attempt.
package work

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/attempt"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/logs"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// Site is a namespace whose queue has room for every job, in a cluster that tells who asks it for what.
type Site struct {
	*world.World
	Log *logs.Audit
}

// Open makes a site, and waits until its queue takes jobs. Its flavor is of nodes by two labels, as GPU
// pools have them; behind admission checks it names no nodes. The jobs ask for CPUs: nodes have GPUs for
// a few hundred of them only.
func Open(ctx context.Context, cluster *world.Cluster, kind string, checks ...string) *Site {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	g := attempt.Gomega()
	g.SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	w := world.New(ctx, g, io.Discard, cluster, kind, "bench")
	flavor := kit.Flavor(w.Name("cpus"), map[string]string{kit.ProductLabel: kit.H100, kit.FamilyLabel: "hopper"}, kit.GPUToleration())
	w.Make(ctx, kit.Queue(w.LocalQueue(), flavor, kit.Quota{Of: corev1.ResourceCPU, Amount: "100k"}, checks...)...)
	w.EventuallyIs(ctx, &corev1.ServiceAccount{}, "default")
	// Whether a TrainJob is for another cluster is decided by what Kueue knows when it is created.
	w.EventuallyIs(ctx, &kueue.LocalQueue{}, "queue", world.True(kueue.LocalQueueActive))
	return &Site{w, attempt.Must(logs.OpenAudit(filepath.Join(cluster.LocalDir(), "logs", "audit.log")))}
}

// Until waits for a condition.
func Until(ctx context.Context, every time.Duration, what string, met func() bool) {
	err := wait.PollUntilContextCancel(ctx, every, true, func(context.Context) (bool, error) { return met(), nil })
	attempt.Succeed(err, "waiting for %s", what)
}

// StopQueue sets whether the queue admits, holds, or holds and evicts.
func (s *Site) StopQueue(ctx context.Context, policy kueue.StopPolicy) {
	s.SetStopPolicy(ctx, kit.ClusterQueue(s.Name("gpus")), policy)
}

// OnePod is a TrainJob of one pod.
func (s *Site) OnePod(i int, cpu string) *trainer.TrainJob {
	return s.Job(fmt.Sprintf("job-%04d", i)).Request(corev1.ResourceCPU, cpu).Obj()
}
