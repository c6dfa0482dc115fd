// SPDX-License-Identifier: Apache-2.0

// Package work is what the benchmarks of one cluster and of a fleet share: a queue, and TrainJobs in it.
// What fails ends the attempt.
package work

import (
	"context"
	"fmt"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/attempt"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// Queue is the name of flavor, ClusterQueue and LocalQueue.
const Queue = "bench"

// Until waits for a condition, whose error ends the wait.
func Until(ctx context.Context, every time.Duration, what string, met func() (bool, error)) {
	err := wait.PollUntilContextCancel(ctx, every, true, func(context.Context) (bool, error) { return met() })
	attempt.Succeed(err, "waiting for %s", what)
}

// MakeQueue makes a namespace with a queue that has room for every job, and waits until it takes some.
// Its flavor is of nodes by two labels, as GPU pools have them; behind admission checks it names no
// nodes. The jobs ask for CPUs: nodes have GPUs for a few hundred of them only.
func MakeQueue(ctx context.Context, cluster *world.Cluster, namespace string, checks ...string) {
	flavor := kit.Flavor(Queue, map[string]string{kit.ProductLabel: kit.H100, kit.FamilyLabel: "hopper"}, kit.GPUToleration())
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	c, quota := cluster.Client, kit.Quota{Of: corev1.ResourceCPU, Amount: "100k"}
	queue := kit.Queue(kit.LocalQueue(namespace, Queue, Queue), flavor, quota, checks...)
	for _, obj := range append([]client.Object{kit.Namespace(namespace)}, queue...) {
		attempt.Succeed(c.Create(ctx, obj), "creating %T %s %s", obj, obj.GetName(), cluster.Name)
	}
	Until(ctx, 50*time.Millisecond, "default ServiceAccount", func() (bool, error) {
		err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "default"}, &corev1.ServiceAccount{})
		return err == nil, client.IgnoreNotFound(err)
	})
	// Whether a TrainJob is for another cluster is decided by what Kueue knows when it is created.
	Until(ctx, 50*time.Millisecond, "LocalQueue", func() (bool, error) {
		var lq kueue.LocalQueue
		err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: Queue}, &lq)
		return apimeta.IsStatusConditionTrue(lq.Status.Conditions, kueue.LocalQueueActive), err
	})
}

// StopQueue sets whether the queue admits, holds, or holds and evicts.
func StopQueue(ctx context.Context, c client.Client, policy kueue.StopPolicy) {
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: Queue}}
	attempt.Succeed(c.Patch(ctx, cq, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"stopPolicy":%q}}`, policy))))
}

// Job is a TrainJob of one pod.
func Job(namespace string, i int, cpu string) *trainer.TrainJob {
	return kit.TrainJob(namespace, fmt.Sprintf("job-%04d", i)).Queue(Queue).Request(corev1.ResourceCPU, cpu).Obj()
}
