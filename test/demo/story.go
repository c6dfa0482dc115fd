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
)

// claim is a sentence about the cluster, and how it is checked.
type claim struct {
	text string
	// check says what is otherwise.
	check func() error
}

// play sets the stage, plays the story, checks that it came true and sums it up.
func (s *stage) play(ctx context.Context) error {
	if err := s.set(ctx); err != nil {
		return s.reason(ctx, err)
	}
	if err := s.act(ctx); err != nil {
		return s.reason(ctx, err)
	}
	if err := s.printTable(); err != nil {
		return err
	}
	return s.verify()
}

// reason puts Ctrl-C before the errors that it leads to.
func (s *stage) reason(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), context.Canceled) {
		return errInterrupted
	}
	return err
}

// act is the story. Every step waits for what the one before it leads to.
func (s *stage) act(ctx context.Context) error {
	resnetJob, llamaJob := s.job(vision, "resnet"), s.job(language, "llama")
	qwenJob, vitJob := s.job(language, "qwen"), s.job(vision, "vit")
	for _, step := range []func() error{
		func() error { return s.submit(ctx, resnet()) },
		func() error { return s.await(ctx, trains(resnetJob, "h100")) },

		func() error { return s.submit(ctx, llama()) },
		func() error { return s.await(ctx, trains(llamaJob, "h100"), trains(resnetJob, "a100")) },

		func() error { return s.submit(ctx, qwen()) },
		func() error { return s.await(ctx, admitted(qwenJob)) },
		func() error { return s.submit(ctx, vit()) },
		func() error { return s.await(ctx, waitsForQuota(vitJob), trains(qwenJob, "h100")) },

		// What frees the quota that vit waits for, and nothing else does.
		func() error { return s.noPod(ctx, vitJob) },
		func() error { return s.letEnd(ctx, llamaJob, "launcher", "15s") },
		func() error { return s.await(ctx, finished(llamaJob), trains(vitJob, "h100")) },

		func() error { return s.letEnd(ctx, qwenJob, "node", "15s") },
		func() error { return s.letEnd(ctx, resnetJob, "node", "25s") },
		func() error {
			return s.await(ctx, finished(vitJob), finished(qwenJob), finished(resnetJob), s.quotaFree())
		},
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (s *stage) submit(ctx context.Context, t *trainer.TrainJob) error {
	if err := s.client.Create(ctx, t); err != nil {
		return fmt.Errorf("submitting TrainJob %s/%s: %w", t.Namespace, t.Name, err)
	}
	return nil
}

// letEnd gives the pods of a replicated job their running time, which counts from their
// start: those that ran for longer end at once. A running time from the beginning could
// be over before the story is ready for it.
func (s *stage) letEnd(ctx context.Context, r *record, replicatedJob, after string) error {
	var pods corev1.PodList
	if err := s.client.List(ctx, &pods, client.InNamespace(r.team),
		client.MatchingLabels{jobsetapi.JobSetNameKey: r.name, jobsetapi.ReplicatedJobNameKey: replicatedJob}); err != nil {
		return fmt.Errorf("listing the pods of %s: %w", r, err)
	}
	if len(pods.Items) == 0 {
		return fmt.Errorf("%s has no pod of replicated job %s that could end", r, replicatedJob)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		before := pod.DeepCopy()
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, runFor, after)
		if err := s.client.Patch(ctx, pod, client.MergeFrom(before)); err != nil {
			return fmt.Errorf("annotating pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
	}
	return nil
}

// noPod asks the API server itself whether a job that waits has no pod.
func (s *stage) noPod(ctx context.Context, r *record) error {
	var pods corev1.PodList
	if err := s.client.List(ctx, &pods, client.InNamespace(r.team), client.MatchingLabels{jobsetapi.JobSetNameKey: r.name}); err != nil {
		return fmt.Errorf("listing the pods of %s: %w", r, err)
	}
	if len(pods.Items) > 0 {
		return fmt.Errorf("this did not come true: %s has no pod while it waits for quota (it has %d, pod %s is %s)",
			r, len(pods.Items), pods.Items[0].Name, pods.Items[0].Status.Phase)
	}
	return nil
}

func trains(r *record, flavor string) claim {
	return claim{fmt.Sprintf("all pods of %s with GPUs run on pool %s", r, flavor), func() error {
		if !r.trains(flavor) {
			return errors.New(r.state())
		}
		return nil
	}}
}

func admitted(r *record) claim {
	return claim{fmt.Sprintf("%s is admitted", r), func() error {
		if r.now() == nil {
			return errors.New(r.state())
		}
		return nil
	}}
}

func waitsForQuota(r *record) claim {
	return claim{fmt.Sprintf("%s waits for quota", r), func() error {
		if r.now() != nil || !strings.Contains(r.waits, "insufficient unused quota") {
			return errors.New(r.state())
		}
		return nil
	}}
}

func finished(r *record) claim {
	return claim{fmt.Sprintf("%s finishes, TrainJob and Workload, and no pod of it is left running", r), func() error {
		if !r.complete || r.finished.IsZero() || r.active() > 0 {
			return fmt.Errorf("TrainJob complete: %t; %s, pods running: %d", r.complete, r.state(), r.active())
		}
		return nil
	}}
}

func (s *stage) quotaActive() claim {
	return claim{fmt.Sprintf("ClusterQueue %s takes jobs", clusterQueue), func() error {
		if s.queue == nil || !apimeta.IsStatusConditionTrue(s.queue.Status.Conditions, kueue.ClusterQueueActive) {
			return errors.New("its condition Active is not true")
		}
		return nil
	}}
}

func (s *stage) quotaFree() claim {
	return claim{fmt.Sprintf("all quota of ClusterQueue %s is free again", clusterQueue), func() error {
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
