// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/kueue-trainer/kueue-trainer/test/demo/internal/play"
)

func (s *stage) onPod(seen sighting, pod *corev1.Pod) {
	name, ok := pod.Labels[jobsetapi.JobSetNameKey]
	if !ok {
		return
	}
	r := s.job(pod.Namespace, name)
	p := r.pod(pod)
	p.Pod = pod
	if pod.Status.Phase == corev1.PodRunning && p.running.IsZero() {
		p.running = seen.at
		r.now().join(p)
	}
	ended := seen.deleted || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	if ended && p.over.IsZero() {
		p.over = seen.at
	}
	for _, stay := range r.stays {
		s.tellPods(seen.at, r, stay)
	}
}

// pod returns the record of a pod, a new one at its first sight.
func (r *record) pod(pod *corev1.Pod) *podRecord {
	for _, p := range r.pods {
		if p.UID == pod.UID {
			return p
		}
	}
	p := &podRecord{}
	r.pods = append(r.pods, p)
	return p
}

// join puts a pod that begins to run into its group. One that runs without an admission is in none.
func (s *stay) join(p *podRecord) {
	if s == nil {
		return
	}
	for _, g := range s.groups {
		if g.replicatedJob == p.replicatedJob() {
			p.group, g.pods = g, append(g.pods, p)
		}
	}
}

// tellPods tells of replicated jobs as wholes: all their pods run, succeeded, or had to go.
func (s *stage) tellPods(at time.Time, r *record, stay *stay) {
	for _, g := range stay.groups {
		// A job of one replicated job needs no more name than its own.
		prefix := ""
		if len(stay.groups) > 1 {
			prefix = g.replicatedJob + " "
		}
		if g.all((*podRecord).runs) {
			s.tell(at, r, play.Plain, "%sruns on %s", prefix, strings.Join(g.nodes(), ", "))
		}
		if prefix != "" && g.all((*podRecord).succeeded) {
			s.tell(at, r, play.Plain, "%ssucceeded", prefix)
		}
	}
	all := stay.pods()
	if r.now() != stay && r.finished.IsZero() && len(all) > 0 && count(all, (*podRecord).runs) == 0 {
		s.tell(at, r, play.Plain, "stopped on pool %s: its %d pods have ended", stay.flavor, len(all))
	}
}

// nodes are the names of those that the pods are on, each once.
func (g *group) nodes() []string {
	var names []string
	for _, p := range g.pods {
		names = append(names, p.Spec.NodeName)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
