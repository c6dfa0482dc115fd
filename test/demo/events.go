// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
)

func (s *stage) onTrainJob(seen sighting, t *trainer.TrainJob) {
	r := s.job(t.Namespace, t.Name)
	r.uid = t.UID
	s.say(seen.at, r, plain, "submitted: %s", wants(t))
	r.complete = apimeta.IsStatusConditionTrue(t.Status.Conditions, trainer.TrainJobComplete)
	if failed := apimeta.FindStatusCondition(t.Status.Conditions, trainer.TrainJobFailed); failed != nil && failed.Status == metav1.ConditionTrue {
		r.failure = failed.Message
	}
	if seen.deleted {
		r.failure = "it was deleted"
	}
}

func wants(t *trainer.TrainJob) string {
	gpus := t.Spec.Trainer.ResourcesPerNode.Requests[kit.GPU]
	text := fmt.Sprintf("%s, %s", t.Spec.RuntimeRef.Name, nodesTimesGPUs(int(*t.Spec.Trainer.NumNodes), gpus.Value()))
	if class := t.Labels[kit.PriorityLabel]; class != "" {
		text += ", priority " + class
	}
	return text
}

func nodesTimesGPUs(nodes int, gpus int64) string {
	return fmt.Sprintf("%s x %d GPUs", show.Count(int64(nodes), "node"), gpus)
}

func (s *stage) onWorkload(seen sighting, wl *kueue.Workload) {
	owner := metav1.GetControllerOf(wl)
	if owner == nil || owner.Kind != "TrainJob" {
		return
	}
	r := s.job(wl.Namespace, owner.Name)
	r.workload = wl
	if seen.deleted {
		r.failure = "its Workload was deleted"
		return
	}
	if preempted := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadPreempted); preempted != nil && preempted.Status == metav1.ConditionTrue {
		s.onPreempted(seen.at, r, preempted.Message)
	}
	s.onWaiting(seen.at, r, wl)
	s.onAdmission(seen.at, r, wl)
	s.onFinished(seen.at, r, apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadFinished))
}

// preemptor finds, in Kueue's message, for whom and why a job was preempted.
var preemptor = regexp.MustCompile(`JobUID: ([^)]*)\) due to ([^;]*)`)

func (s *stage) onPreempted(at time.Time, r *jobRecord, message string) {
	match := preemptor.FindStringSubmatch(message)
	if match == nil {
		s.say(at, r, s.paint.Red, "preempted: %s", message)
		return
	}
	r.preemptedBy = "a job with UID " + match[1]
	for _, other := range s.jobs {
		if string(other.uid) == match[1] {
			r.preemptedBy = other.String()
		}
	}
	s.say(at, r, s.paint.Red, "preempted by %s: %s", r.preemptedBy, match[2])
}

// onWaiting tells why a job waits. That it was preempted is told already.
func (s *stage) onWaiting(at time.Time, r *jobRecord, wl *kueue.Workload) {
	quota := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadQuotaReserved)
	if quota == nil || quota.Status != metav1.ConditionFalse || strings.HasPrefix(quota.Message, "Preempted ") {
		return
	}
	r.waits = quota.Message
	s.say(at, r, s.paint.Yellow, "waits: %s", quota.Message)
}

func (s *stage) onAdmission(at time.Time, r *jobRecord, wl *kueue.Workload) {
	if !r.finished.IsZero() {
		return // a finished Workload keeps its admission, and holds no quota
	}
	admitted := wl.Status.Admission != nil && apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadAdmitted)
	evicted := apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadEvicted)
	switch now := r.now(); {
	case now == nil && admitted && !evicted:
		now = newStay(wl.Status.Admission)
		r.stays, r.waits = append(r.stays, now), ""
		s.say(at, r, s.paint.Cyan, "admitted to pool %s: %s", now.flavor, now.size())
	case now != nil && (!admitted || evicted):
		now.ended = at
	}
}

// size is what an admission gives; the pods with GPUs have equally many in this story.
func (s *stay) size() string {
	text := nodesTimesGPUs(s.nodes, s.gpus/int64(max(1, s.nodes)))
	if s.without > 0 {
		text += fmt.Sprintf(", and %d pods without GPUs", s.without)
	}
	return text
}

func (s *stage) onFinished(at time.Time, r *jobRecord, finished *metav1.Condition) {
	switch now := r.now(); {
	case finished == nil || !r.finished.IsZero():
	case finished.Reason != kueue.WorkloadFinishedReasonSucceeded:
		r.failure = finished.Message
		s.say(at, r, s.paint.Red, "failed: %s", finished.Message)
	default:
		r.finished = at
		if now != nil {
			now.ended = at
			s.say(at, r, s.paint.Green, "succeeded: %d GPUs of pool %s are free again", now.gpus, now.flavor)
		}
	}
}

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

func (r *jobRecord) pod(pod *corev1.Pod) *podRecord {
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
func (s *stage) tellPods(at time.Time, r *jobRecord, stay *stay) {
	for _, g := range stay.groups {
		// A job of one replicated job needs no more name than its own.
		prefix := ""
		if len(stay.groups) > 1 {
			prefix = g.replicatedJob + " "
		}
		if g.all((*podRecord).runs) {
			s.say(at, r, plain, "%sruns on %s", prefix, strings.Join(g.nodes(), ", "))
		}
		if prefix != "" && g.all((*podRecord).succeeded) {
			s.say(at, r, plain, "%ssucceeded", prefix)
		}
	}
	all := stay.pods()
	if r.now() != stay && r.finished.IsZero() && len(all) > 0 && count(all, (*podRecord).runs) == 0 {
		s.say(at, r, plain, "stopped on pool %s: its %d pods have ended", stay.flavor, len(all))
	}
}

func (g *group) nodes() []string {
	var names []string
	for _, p := range g.pods {
		names = append(names, p.Spec.NodeName)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
