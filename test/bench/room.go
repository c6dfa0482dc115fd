// SPDX-License-Identifier: Apache-2.0

package main

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

// room is a namespace whose queue has room for every job, in a cluster that tells who asks it for what. What fails ends
// the attempt.
type room struct {
	*world.World
	log *logs.Audit
}

// newRoom makes a namespace, and waits until its queue takes jobs. Its flavor is of nodes by two labels, as GPU
// pools have them; behind admission checks it names no nodes. The jobs ask for CPUs: nodes have GPUs for
// a few hundred of them only.
func newRoom(ctx context.Context, cluster *world.Cluster, kind string, checks ...string) *room {
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
	return &room{w, attempt.Must(logs.OpenAudit(filepath.Join(cluster.LocalDir(), "logs", "audit.log")))}
}

// until waits for a condition.
func until(ctx context.Context, every time.Duration, what string, met func() bool) {
	err := wait.PollUntilContextCancel(ctx, every, true, func(context.Context) (bool, error) { return met(), nil })
	attempt.Succeed(err, "waiting for %s", what)
}

// stopQueue sets whether the queue admits, holds, or holds and evicts.
func (r *room) stopQueue(ctx context.Context, policy kueue.StopPolicy) {
	r.SetStopPolicy(ctx, kit.ClusterQueue(r.Name("gpus")), policy)
}

// onePod is a TrainJob of one pod.
func (r *room) onePod(i int, cpu string) *trainer.TrainJob {
	return r.Job(fmt.Sprintf("job-%04d", i)).Request(corev1.ResourceCPU, cpu).Obj()
}
