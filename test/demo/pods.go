// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
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
		p.running, p.stay = seen.at, r.now()
	}
	ended := seen.deleted || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	if ended && p.over.IsZero() {
		p.over = seen.at
	}
	if p.stay != nil {
		s.tellPods(seen.at, r, p)
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

// tellPods tells of a replicated job as a whole: all its pods run, succeeded, or had to go.
func (s *stage) tellPods(at time.Time, r *record, p *podRecord) {
	stay, name := p.stay, p.replicatedJob()
	for _, sh := range stay.podSets {
		if sh.replicatedJob != name {
			continue
		}
		// A job of one replicated job needs no more name than its own.
		prefix := ""
		if len(stay.podSets) > 1 {
			prefix = name + " "
		}
		if r.are(stay, sh, (*podRecord).runs) && stay.once(name+" runs") {
			s.tell(at, r, plain, "%sruns on %s", prefix, strings.Join(nodesOf(r.podsOf(stay, name)), ", "))
		}
		if prefix != "" && r.are(stay, sh, (*podRecord).succeeded) && stay.once(name+" succeeded") {
			s.tell(at, r, plain, "%ssucceeded", prefix)
		}
	}
	all := r.podsOf(stay, "")
	if r.now() != stay && r.finished.IsZero() && count(all, (*podRecord).runs) == 0 && stay.once("over") {
		s.tell(at, r, plain, "stopped on pool %s: its %d pods have ended", stay.flavor, len(all))
	}
}

// nodesOf are the names of the nodes, each once.
func nodesOf(pods []*podRecord) []string {
	var names []string
	for _, p := range pods {
		names = append(names, p.Spec.NodeName)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
