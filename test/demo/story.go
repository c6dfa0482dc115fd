// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/attempt"
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

// pools are the node labels of flavors, as GPU Feature Discovery sets them. The first has a label more:
// a job that changes pools must not keep it.
var pools = map[string]map[string]string{
	"h100": {kit.ProductLabel: kit.H100, kit.FamilyLabel: "hopper"},
	"a100": {kit.ProductLabel: kit.A100},
}

// quota of each pool: all GPUs that there are.
const quota = "32"

func queueOf(team string) string { return team + "-queue" }

// setting is everything but the jobs, in the order in which it can be created.
func setting() []client.Object {
	objs := []client.Object{
		kit.Priority(urgent, 1000), kit.Flavor("h100", pools["h100"]), kit.Flavor("a100", pools["a100"]),
		kit.ClusterQueue(clusterQueue, kit.Quota{Flavor: "h100", GPUs: quota}, kit.Quota{Flavor: "a100", GPUs: quota}),
	}
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
		failures = errors.Join(failures, wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, stepLimit, true, func(ctx context.Context) (bool, error) {
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
var (
	resnet = job(vision, "resnet", "torch-distributed", 4, "8").Obj()
	llama  = job(language, "llama", "deepspeed-distributed", 2, "8").Priority(urgent).Obj()
	qwen   = job(language, "qwen", "torchtune-qwen2.5-1.5b", 1, "2").Initializers().
		PodAnnotations(demoManager, runFor, "4s", "dataset-initializer", "model-initializer").Obj()
	vit = job(vision, "vit", "torch-distributed", 2, "8").PodAnnotations(demoManager, runFor, "8s", "node").Obj()
)

// play sets the stage, plays the story, sums it up and checks that it came true.
func (s *stage) play(ctx context.Context) {
	s.set(ctx)
	// Every step waits for what the one before it leads to.
	resnetJob := s.submit(ctx, resnet)
	s.await(ctx, trains(resnetJob, "h100"))

	llamaJob := s.submit(ctx, llama)
	s.await(ctx, trains(llamaJob, "h100"), trains(resnetJob, "a100"))

	qwenJob := s.submit(ctx, qwen)
	s.await(ctx, admitted(qwenJob))
	vitJob := s.submit(ctx, vit)
	s.await(ctx, waitsForQuota(vitJob), trains(qwenJob, "h100"))

	// What frees the quota that vit waits for, and nothing else does.
	s.letEnd(ctx, llamaJob, "launcher", "15s")
	s.await(ctx, finished(llamaJob), trains(vitJob, "h100"))

	s.letEnd(ctx, qwenJob, "node", "15s")
	s.letEnd(ctx, resnetJob, "node", "25s")
	s.await(ctx, finished(vitJob), finished(qwenJob), finished(resnetJob), s.quotaFree())

	s.verify(
		s.went(resnetJob, "h100", "a100"), s.went(llamaJob, "h100"), s.went(qwenJob, "h100"), s.went(vitJob, "h100"),
		preempted(resnetJob, llamaJob),
		s.placed(),
		noPodBefore(vitJob, llamaJob),
		downloadsFirst(qwenJob),
		s.allComplete(),
		s.quotaFree(),
	)
}

func (s *stage) submit(ctx context.Context, t *trainer.TrainJob) *jobRecord {
	attempt.Succeed(s.cluster.Client.Create(ctx, t), "submitting TrainJob %s/%s", t.Namespace, t.Name)
	return s.job(t.Namespace, t.Name)
}

// letEnd sets the running time of the pods of a replicated job, which counts from their start: those that ran for
// longer end at once. A running time from the beginning could be over before the story is ready for it.
func (s *stage) letEnd(ctx context.Context, r *jobRecord, replicatedJob, after string) {
	for _, p := range r.pods {
		if p.replicatedJob() != replicatedJob || !p.runs() {
			continue
		}
		pod := p.DeepCopy()
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, runFor, after)
		attempt.Succeed(s.cluster.Client.Patch(ctx, pod, client.MergeFrom(p.Pod)), "annotating pod %s/%s", pod.Namespace, pod.Name)
	}
}

func (r *jobRecord) claim(is func() bool, text string, args ...any) claim {
	return claimed(r.String()+fmt.Sprintf(text, args...), is, r.state)
}

func trains(r *jobRecord, flavor string) claim {
	return r.claim(func() bool { return r.trains(flavor) }, " trains: all its pods with GPUs run on pool %s", flavor)
}

func admitted(r *jobRecord) claim {
	return r.claim(func() bool { return r.now() != nil }, " is admitted")
}

func waitsForQuota(r *jobRecord) claim {
	return r.claim(func() bool {
		return r.now() == nil && strings.Contains(r.waits, "insufficient unused quota") && len(r.pods) == 0
	}, " waits for quota, and has no pod")
}

func finished(r *jobRecord) claim {
	return r.claim(func() bool { return r.complete && !r.finished.IsZero() && r.active() == 0 },
		" finishes, TrainJob and Workload, and no pod of it is left running")
}

func (s *stage) quotaActive() claim {
	return claimed(fmt.Sprintf("ClusterQueue %s takes jobs", clusterQueue), func() bool {
		return s.queue != nil && apimeta.IsStatusConditionTrue(s.queue.Status.Conditions, kueue.ClusterQueueActive)
	}, func() string { return "its condition Active is not true" })
}

func (s *stage) quotaFree() claim {
	return claim{text: fmt.Sprintf("all quota of ClusterQueue %s is free again", clusterQueue), check: func() error {
		for _, flavor := range s.queue.Status.FlavorsUsage {
			for _, resource := range flavor.Resources {
				if !resource.Total.IsZero() {
					return fmt.Errorf("%s %s of flavor %s are in use", resource.Total.String(), resource.Name, flavor.Name)
				}
			}
		}
		return nil
	}}
}

// went checks where the pods of a job really ran: all of an admission's pods, on nodes of its pool.
func (s *stage) went(r *jobRecord, flavors ...string) claim {
	text := fmt.Sprintf("%s trained on %s nodes only", r, strings.ToUpper(flavors[0]))
	if len(flavors) > 1 {
		text = fmt.Sprintf("%s trained on %s nodes first, and on %s nodes later", r, strings.ToUpper(flavors[0]), strings.ToUpper(flavors[1]))
	}
	return claim{text: text, check: func() error {
		if got := r.flavors(); !slices.Equal(got, flavors) {
			return fmt.Errorf("it was admitted to %v", got)
		}
		for _, stay := range r.stays {
			for _, g := range stay.groups {
				strays := slices.DeleteFunc(g.nodes(), func(node string) bool { return s.poolOf(node) == g.flavor })
				if len(g.pods) != g.size || len(strays) > 0 {
					return fmt.Errorf("%d pods of replicated job %s ran, Kueue admitted %d; %v are not of pool %q", len(g.pods), g.replicatedJob, g.size, strays, g.flavor)
				}
			}
		}
		return nil
	}}
}

// poolOf is the pool whose labels a node has, or "" for a node without GPUs.
func (s *stage) poolOf(node string) string {
	for pool, of := range pools {
		if labels.SelectorFromSet(of).Matches(labels.Set(s.nodes[node].Labels)) {
			return pool
		}
	}
	return ""
}

func preempted(victim, by *jobRecord) claim {
	return victim.claim(func() bool { return victim.preemptedBy == by.String() }, " lost its quota to %s", by)
}

// placed checks every pod that there was, those included that never ran.
func (s *stage) placed() claim {
	return claim{text: "every pod selected its nodes by the labels of its pool, no more and no less", check: func() error {
		for _, r := range s.jobs {
			for _, p := range r.pods {
				if p.group == nil {
					return fmt.Errorf("pod %s of %s never ran under an admission", p.Name, r)
				}
				if want := pools[p.group.flavor]; !maps.Equal(p.Spec.NodeSelector, want) {
					return fmt.Errorf("pod %s of %s selects %v, its pool is %v", p.Name, r, p.Spec.NodeSelector, want)
				}
			}
		}
		return nil
	}}
}

// noPodBefore compares the API server's own times, which have whole seconds. That there
// was no pod at all was awaited just before.
func noPodBefore(waiting, first *jobRecord) claim {
	return waiting.claim(func() bool {
		free := apimeta.FindStatusCondition(first.workload.Status.Conditions, kueue.WorkloadFinished).LastTransitionTime
		return count(waiting.pods, func(p *podRecord) bool { return p.CreationTimestamp.Before(&free) }) == 0
	}, " had no pod until %s finished", first)
}

func downloadsFirst(r *jobRecord) claim {
	return r.claim(func() bool {
		trained := slices.IndexFunc(r.pods, func(p *podRecord) bool { return p.replicatedJob() == "node" })
		downloaded := count(r.pods, func(p *podRecord) bool {
			return p.group != nil && p.group.gpus == 0 && !p.over.IsZero() && !p.over.After(r.pods[trained].running)
		})
		return len(r.pods) == 3 && downloaded == 2
	}, " downloaded dataset and model without a GPU before it trained")
}

func (s *stage) allComplete() claim {
	return claim{text: "all TrainJobs are complete and all Workloads have succeeded", check: func() error {
		for _, r := range s.jobs {
			if err := finished(r).check(); err != nil {
				return fmt.Errorf("%s: %w", r, err)
			}
		}
		return nil
	}}
}
