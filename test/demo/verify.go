// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/demo/internal/play"
)

// went checks where the pods of a job really ran: all of an admission's pods, on nodes of its pool.
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
	for _, pool := range pools() {
		if labels.SelectorFromSet(pool.Spec.NodeLabels).Matches(labels.Set(s.nodes[node].Labels)) {
			return pool.Name
		}
	}
	return ""
}

func preempted(victim, by *record) play.Claim {
	return victim.claim(func() bool { return victim.preemptedBy == by.String() }, " lost its quota to %s", by)
}

// placed checks every pod that there was, those included that never ran.
func (s *stage) placed() play.Claim {
	return play.Claim{Text: "every pod selected its nodes by the labels of its pool, no more and no less", Check: func() error {
		for _, r := range s.jobs {
			for _, p := range r.pods {
				if p.group == nil {
					return fmt.Errorf("pod %s of %s never ran under an admission", p.Name, r)
				}
				want := labelsOf(p.group.flavor)
				if !maps.Equal(p.Spec.NodeSelector, want) {
					return fmt.Errorf("pod %s of %s selects %v, its pool is %v", p.Name, r, p.Spec.NodeSelector, want)
				}
			}
		}
		return nil
	}}
}

// labelsOf are the labels of a pool, and none of no pool.
func labelsOf(flavor string) map[string]string {
	for _, pool := range pools() {
		if pool.Name == flavor {
			return pool.Spec.NodeLabels
		}
	}
	return nil
}

// noPodBefore compares the API server's own times, which have whole seconds. That there
// was no pod at all was awaited just before.
func noPodBefore(waiting, first *record) play.Claim {
	return waiting.claim(func() bool {
		free := apimeta.FindStatusCondition(first.workload.Status.Conditions, kueue.WorkloadFinished).LastTransitionTime
		return count(waiting.pods, func(p *podRecord) bool { return p.CreationTimestamp.Before(&free) }) == 0
	}, " had no pod until %s finished", first)
}

func downloadsFirst(r *record) play.Claim {
	return r.claim(func() bool {
		trained := slices.IndexFunc(r.pods, func(p *podRecord) bool { return p.replicatedJob() == "node" })
		downloaded := count(r.pods, func(p *podRecord) bool {
			return p.group != nil && p.group.gpus == 0 && !p.over.IsZero() && !p.over.After(r.pods[trained].running)
		})
		return len(r.pods) == 3 && downloaded == 2
	}, " downloaded dataset and model without a GPU before it trained")
}

func (s *stage) allComplete() play.Claim {
	return play.Claim{Text: "all TrainJobs are complete and all Workloads have succeeded", Check: func() error {
		for _, r := range s.jobs {
			if err := finished(r).Check(); err != nil {
				return fmt.Errorf("%s: %w", r, err)
			}
		}
		return nil
	}}
}
