// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/attempt"
	"github.com/kueue-trainer/kueue-trainer/test/demo/internal/play"
)

// play sets the stage, plays the story, sums it up and checks that it came true.
func (s *stage) play(ctx context.Context) {
	s.set(ctx)
	resnetJob, llamaJob := s.job(vision, "resnet"), s.job(language, "llama")
	qwenJob, vitJob := s.job(language, "qwen"), s.job(vision, "vit")
	// Every step waits for what the one before it leads to.
	s.submit(ctx, resnet())
	s.Await(ctx, trains(resnetJob, "h100"))

	s.submit(ctx, llama())
	s.Await(ctx, trains(llamaJob, "h100"), trains(resnetJob, "a100"))

	s.submit(ctx, qwen())
	s.Await(ctx, admitted(qwenJob))
	s.submit(ctx, vit())
	s.Await(ctx, waitsForQuota(vitJob), trains(qwenJob, "h100"))

	// What frees the quota that vit waits for, and nothing else does.
	s.letEnd(ctx, llamaJob, "launcher", "15s")
	s.Await(ctx, finished(llamaJob), trains(vitJob, "h100"))

	s.letEnd(ctx, qwenJob, "node", "15s")
	s.letEnd(ctx, resnetJob, "node", "25s")
	s.Await(ctx, finished(vitJob), finished(qwenJob), finished(resnetJob), s.quotaFree())

	s.printTable()
	s.Verify(
		s.went(resnetJob, "h100", "a100"), s.went(llamaJob, "h100"), s.went(qwenJob, "h100"), s.went(vitJob, "h100"),
		preempted(resnetJob, llamaJob),
		s.placed(),
		noPodBefore(vitJob, llamaJob),
		downloadsFirst(qwenJob),
		s.allComplete(),
		s.quotaFree(),
	)
}

func (s *stage) submit(ctx context.Context, t *trainer.TrainJob) {
	attempt.Succeed(s.cluster.Client.Create(ctx, t), "submitting TrainJob %s/%s", t.Namespace, t.Name)
}

// letEnd gives the pods of a replicated job their running time, which counts from their
// start: those that ran for longer end at once. A running time from the beginning could
// be over before the story is ready for it.
func (s *stage) letEnd(ctx context.Context, r *record, replicatedJob, after string) {
	for _, p := range r.pods {
		if p.replicatedJob() != replicatedJob || !p.runs() {
			continue
		}
		pod := p.DeepCopy()
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, runFor, after)
		attempt.Succeed(s.cluster.Client.Patch(ctx, pod, client.MergeFrom(p.Pod)), "annotating pod %s/%s", pod.Namespace, pod.Name)
	}
}

// claim is about a job, whose state says what is otherwise.
func (r *record) claim(is func() bool, text string, args ...any) play.Claim {
	return play.Claim{Text: r.String() + fmt.Sprintf(text, args...), Check: func() error {
		if !is() {
			return errors.New(r.state())
		}
		return nil
	}}
}

func trains(r *record, flavor string) play.Claim {
	return r.claim(func() bool { return r.trains(flavor) }, " trains: all its pods with GPUs run on pool %s", flavor)
}

func admitted(r *record) play.Claim {
	return r.claim(func() bool { return r.now() != nil }, " is admitted")
}

func waitsForQuota(r *record) play.Claim {
	return r.claim(func() bool {
		return r.now() == nil && strings.Contains(r.waits, "insufficient unused quota") && len(r.pods) == 0
	}, " waits for quota, and has no pod")
}

func finished(r *record) play.Claim {
	return r.claim(func() bool { return r.complete && !r.finished.IsZero() && r.active() == 0 },
		" finishes, TrainJob and Workload, and no pod of it is left running")
}

func (s *stage) quotaActive() play.Claim {
	return play.Claim{Text: fmt.Sprintf("ClusterQueue %s takes jobs", clusterQueue), Check: func() error {
		if s.queue == nil || !apimeta.IsStatusConditionTrue(s.queue.Status.Conditions, kueue.ClusterQueueActive) {
			return errors.New("its condition Active is not true")
		}
		return nil
	}}
}

func (s *stage) quotaFree() play.Claim {
	return play.Claim{Text: fmt.Sprintf("all quota of ClusterQueue %s is free again", clusterQueue), Check: func() error {
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
