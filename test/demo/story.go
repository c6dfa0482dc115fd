// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/attempt"
	"github.com/kueue-trainer/kueue-trainer/test/demo/internal/play"
)

// play sets the stage, plays the story, checks that it came true and sums it up.
func (s *stage) play(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, storyLimit)
	defer cancel()
	err := attempt.To(func() {
		s.set(limited)
		s.act(limited)
		s.printTable()
		attempt.Succeed(s.verify())
	})
	// Ctrl-C comes before the errors that it leads to.
	if err != nil && ctx.Err() != nil {
		return play.ErrInterrupted
	}
	return err
}

// act is the story. Every step waits for what the one before it leads to.
func (s *stage) act(ctx context.Context) {
	resnetJob, llamaJob := s.job(vision, "resnet"), s.job(language, "llama")
	qwenJob, vitJob := s.job(language, "qwen"), s.job(vision, "vit")
	s.submit(ctx, resnet())
	s.await(ctx, trains(resnetJob, "h100"))

	s.submit(ctx, llama())
	s.await(ctx, trains(llamaJob, "h100"), trains(resnetJob, "a100"))

	s.submit(ctx, qwen())
	s.await(ctx, admitted(qwenJob))
	s.submit(ctx, vit())
	s.await(ctx, waitsForQuota(vitJob), trains(qwenJob, "h100"))

	// What frees the quota that vit waits for, and nothing else does.
	s.noPod(ctx, vitJob)
	s.letEnd(ctx, llamaJob, "launcher", "15s")
	s.await(ctx, finished(llamaJob), trains(vitJob, "h100"))

	s.letEnd(ctx, qwenJob, "node", "15s")
	s.letEnd(ctx, resnetJob, "node", "25s")
	s.await(ctx, finished(vitJob), finished(qwenJob), finished(resnetJob), s.quotaFree())
}

func (s *stage) submit(ctx context.Context, t *trainer.TrainJob) {
	attempt.Succeed(s.client.Create(ctx, t), "submitting TrainJob %s/%s", t.Namespace, t.Name)
}

// letEnd gives the pods of a replicated job their running time, which counts from their
// start: those that ran for longer end at once. A running time from the beginning could
// be over before the story is ready for it.
func (s *stage) letEnd(ctx context.Context, r *record, replicatedJob, after string) {
	pods := s.podsOf(ctx, r, client.MatchingLabels{jobsetapi.ReplicatedJobNameKey: replicatedJob})
	if len(pods) == 0 {
		attempt.Fail("%s has no pod of replicated job %s that could end", r, replicatedJob)
	}
	for i := range pods {
		pod := &pods[i]
		before := pod.DeepCopy()
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, runFor, after)
		attempt.Succeed(s.client.Patch(ctx, pod, client.MergeFrom(before)), "annotating pod %s/%s", pod.Namespace, pod.Name)
	}
}

// noPod asks the API server itself whether a job that waits has no pod.
func (s *stage) noPod(ctx context.Context, r *record) {
	if pods := s.podsOf(ctx, r); len(pods) > 0 {
		attempt.Fail("this did not come true: %s has no pod while it waits for quota (it has %d, pod %s is %s)",
			r, len(pods), pods[0].Name, pods[0].Status.Phase)
	}
}

func (s *stage) podsOf(ctx context.Context, r *record, options ...client.ListOption) []corev1.Pod {
	var pods corev1.PodList
	options = append(options, client.InNamespace(r.team), client.MatchingLabels{jobsetapi.JobSetNameKey: r.name})
	attempt.Succeed(s.client.List(ctx, &pods, options...), "listing the pods of %s", r)
	return pods.Items
}

// claim is about a job, whose state says what is otherwise.
func (r *record) claim(text string, is func() bool) play.Claim {
	return play.Claim{Text: text, Check: func() error {
		if !is() {
			return errors.New(r.state())
		}
		return nil
	}}
}

func trains(r *record, flavor string) play.Claim {
	return r.claim(fmt.Sprintf("all pods of %s with GPUs run on pool %s", r, flavor), func() bool { return r.trains(flavor) })
}

func admitted(r *record) play.Claim {
	return r.claim(fmt.Sprintf("%s is admitted", r), func() bool { return r.now() != nil })
}

func waitsForQuota(r *record) play.Claim {
	return r.claim(fmt.Sprintf("%s waits for quota", r), func() bool {
		return r.now() == nil && strings.Contains(r.waits, "insufficient unused quota")
	})
}

func finished(r *record) play.Claim {
	return play.Claim{Text: fmt.Sprintf("%s finishes, TrainJob and Workload, and no pod of it is left running", r), Check: func() error {
		if !r.complete || r.finished.IsZero() || r.active() > 0 {
			return fmt.Errorf("TrainJob complete: %t; %s, pods running: %d", r.complete, r.state(), r.active())
		}
		return nil
	}}
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
