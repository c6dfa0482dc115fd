// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"slices"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
)

// Teams are namespaces, each with a LocalQueue.
const (
	vision   = "vision"
	language = "language"
)

const (
	clusterQueue = "gpus"
	urgent       = "urgent"
	// demoManager owns the jobs' own patch entries, as a user's tool would.
	demoManager = "example.com/demo"
	runFor      = "localcluster/run-for"
)

// pools are flavors by the labels of GPU Feature Discovery. The first has a label more:
// a job that changes pools must not keep it.
func pools() []*kueue.ResourceFlavor {
	return []*kueue.ResourceFlavor{
		kit.Flavor("h100", map[string]string{kit.ProductLabel: kit.H100, kit.FamilyLabel: "hopper"}),
		kit.Flavor("a100", map[string]string{kit.ProductLabel: kit.A100}),
	}
}

// quota of each pool: all GPUs that there are.
const quota = "32"

func queueOf(team string) string { return team + "-queue" }

// setting is everything but the jobs, in the order in which it can be created.
func setting() []client.Object {
	objs := []client.Object{kit.Priority(urgent, 1000)}
	for _, pool := range pools() {
		objs = append(objs, pool)
	}
	objs = append(objs, kit.ClusterQueue(clusterQueue, kit.Quota{Flavor: "h100", GPUs: quota}, kit.Quota{Flavor: "a100", GPUs: quota}))
	for _, team := range []string{vision, language} {
		objs = append(objs, kit.Namespace(team), kit.LocalQueue(team, queueOf(team), clusterQueue))
	}
	return objs
}

// strike deletes what the story made, and with the namespaces everything in them.
func (s *stage) strike(ctx context.Context) error {
	var failures error
	slices.Reverse(s.made)
	for _, obj := range s.made {
		failures = errors.Join(failures, client.IgnoreNotFound(s.cluster.Client.Delete(ctx, obj)))
	}
	for _, obj := range s.made {
		failures = errors.Join(failures, wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, s.StepLimit, true, func(ctx context.Context) (bool, error) {
			return apierrors.IsNotFound(s.cluster.Client.Get(ctx, client.ObjectKeyFromObject(obj), obj)), nil
		}))
	}
	return failures
}

func job(team, name, runtime string, nodes int32, gpus string) *kit.TrainJobBuilder {
	return kit.TrainJob(team, name).Queue(queueOf(team)).Runtime(runtime).Nodes(nodes).GPUs(gpus)
}

// The arithmetic forces the story, in this order of submission:
//   - resnet fills the H100 pool.
//   - llama is urgent: Kueue takes the first pool it can have, be it by preemption, and
//     resnet is the only job to preempt. The 16 H100s left are too few for resnet, the
//     32 A100s are just enough.
//   - qwen takes 2 of those 16.
//   - vit finds 14 H100s and no A100 free, 2 H100s short, until one of the others ends;
//     the story lets llama be the one.
func resnet() *trainer.TrainJob { return job(vision, "resnet", "torch-distributed", 4, "8").Obj() }

func llama() *trainer.TrainJob {
	return job(language, "llama", "deepspeed-distributed", 2, "8").Priority(urgent).Obj()
}

func qwen() *trainer.TrainJob {
	return job(language, "qwen", "torchtune-qwen2.5-1.5b", 1, "2").Initializers().
		PodAnnotations(demoManager, runFor, "4s", "dataset-initializer", "model-initializer").Obj()
}

func vit() *trainer.TrainJob {
	return job(vision, "vit", "torch-distributed", 2, "8").
		PodAnnotations(demoManager, runFor, "8s", "node").Obj()
}

func cast() []*trainer.TrainJob { return []*trainer.TrainJob{resnet(), llama(), qwen(), vit()} }
