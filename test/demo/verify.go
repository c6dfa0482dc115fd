// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/demo/internal/play"
)

// verify checks what the story claims, on what was seen of it.
func (s *stage) verify() error {
	resnetJob, llamaJob := s.job(vision, "resnet"), s.job(language, "llama")
	qwenJob, vitJob := s.job(language, "qwen"), s.job(vision, "vit")
	return play.Verify(s.out, s.paint, "Checked on what the watches have shown:",
		s.went(resnetJob, "h100", "a100"), s.went(llamaJob, "h100"), s.went(qwenJob, "h100"), s.went(vitJob, "h100"),
		preempted(resnetJob, llamaJob),
		s.placed(),
		noPodBefore(vitJob, llamaJob),
		s.downloadsFirst(qwenJob),
		s.allComplete(),
		s.quotaFree(),
	)
}

// went checks where the pods of a job really ran: all of an admission's pods with GPUs,
// on nodes of its pool.
func (s *stage) went(r *record, pools ...string) play.Claim {
	text := fmt.Sprintf("%s trained on %s nodes only", r, strings.ToUpper(pools[0]))
	if len(pools) > 1 {
		text = fmt.Sprintf("%s trained on %s nodes first, and on %s nodes later", r, strings.ToUpper(pools[0]), strings.ToUpper(pools[1]))
	}
	return play.Claim{Text: text, Check: func() error {
		if got := r.flavors(); !slices.Equal(got, pools) {
			return fmt.Errorf("it was admitted to %v", got)
		}
		for _, stay := range r.stays {
			if err := s.stayed(r, stay); err != nil {
				return err
			}
		}
		return nil
	}}
}

func (s *stage) stayed(r *record, stay *stay) error {
	for _, sh := range stay.podSets {
		pods := r.podsOf(stay, sh.replicatedJob)
		if len(pods) != sh.pods {
			return fmt.Errorf("%d pods of replicated job %s ran, Kueue admitted %d", len(pods), sh.replicatedJob, sh.pods)
		}
		for _, p := range pods {
			if pool := s.poolOf(p.Spec.NodeName); pool != sh.flavor {
				return fmt.Errorf("pod %s ran on node %s, which is of pool %q, not %q", p.Name, p.Spec.NodeName, pool, sh.flavor)
			}
		}
	}
	return nil
}

// poolOf is the pool whose labels a node has, or "" for a node without GPUs.
func (s *stage) poolOf(node string) string {
	for _, pool := range pools() {
		if labels.SelectorFromSet(pool.Spec.NodeLabels).Matches(labels.Set(s.nodes[node].Labels)) {
			return pool.Name
		}
	}
	return ""
}

func preempted(victim, by *record) play.Claim {
	return play.Claim{Text: fmt.Sprintf("%s lost its quota to %s", victim, by), Check: func() error {
		if victim.preemptedBy != by.String() {
			return fmt.Errorf("preempted by %q", victim.preemptedBy)
		}
		return nil
	}}
}

// placed checks every pod that there was, those included that never ran.
func (s *stage) placed() play.Claim {
	return play.Claim{Text: "every pod selected its nodes by the labels of its pool, no more and no less", Check: func() error {
		for _, r := range s.jobs {
			for _, p := range r.pods {
				if p.stay == nil {
					return fmt.Errorf("pod %s of %s never ran under an admission", p.Name, r)
				}
				want := labelsOf(p.stay, p.replicatedJob())
				if !maps.Equal(p.Spec.NodeSelector, want) {
					return fmt.Errorf("pod %s of %s selects %v, its pool is %v", p.Name, r, p.Spec.NodeSelector, want)
				}
			}
		}
		return nil
	}}
}

// labelsOf are the labels of the pool that a replicated job was admitted to, if any.
func labelsOf(s *stay, replicatedJob string) map[string]string {
	for _, sh := range s.podSets {
		for _, pool := range pools() {
			if sh.replicatedJob == replicatedJob && sh.flavor == pool.Name {
				return pool.Spec.NodeLabels
			}
		}
	}
	return nil
}

// noPodBefore compares the API server's own times, which have whole seconds. That there
// was no pod at all was asked just before.
func noPodBefore(waiting, first *record) play.Claim {
	return play.Claim{Text: fmt.Sprintf("%s had no pod until %s finished", waiting, first), Check: func() error {
		free := apimeta.FindStatusCondition(first.workload.Status.Conditions, kueue.WorkloadFinished)
		if free == nil {
			return errors.New("the Workload of the latter has not finished")
		}
		for _, p := range waiting.pods {
			if p.CreationTimestamp.Before(&free.LastTransitionTime) {
				return fmt.Errorf("pod %s was created %s before", p.Name, free.LastTransitionTime.Sub(p.CreationTimestamp.Time))
			}
		}
		return nil
	}}
}

func (s *stage) downloadsFirst(r *record) play.Claim {
	return play.Claim{Text: fmt.Sprintf("%s downloaded dataset and model without a GPU before it trained", r), Check: func() error {
		var trained, downloaded []*podRecord
		for _, p := range r.pods {
			if p.replicatedJob() == "node" {
				trained = append(trained, p)
			} else {
				downloaded = append(downloaded, p)
			}
		}
		if len(trained) != 1 || len(downloaded) != 2 {
			return fmt.Errorf("there were %d pods that download, and %d that train", len(downloaded), len(trained))
		}
		for _, p := range downloaded {
			if p.over.IsZero() || p.over.After(trained[0].running) || s.poolOf(p.Spec.NodeName) != "" {
				return fmt.Errorf("pod %s on node %s had not ended when pod %s ran", p.Name, p.Spec.NodeName, trained[0].Name)
			}
		}
		return nil
	}}
}

func (s *stage) allComplete() play.Claim {
	return play.Claim{Text: "all TrainJobs are complete and all Workloads have succeeded", Check: func() error {
		if len(s.jobs) != len(cast()) {
			return fmt.Errorf("%d jobs were seen", len(s.jobs))
		}
		for _, r := range s.jobs {
			if err := finished(r).Check(); err != nil {
				return fmt.Errorf("%s: %w", r, err)
			}
		}
		return nil
	}}
}
