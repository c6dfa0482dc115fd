// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"slices"
	"sync"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/follow"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// moment is something that happens to a TrainJob.
type moment string

// Moments of a TrainJob. The API's timestamps count seconds, so they are taken when a
// watch brings the news.
const (
	created moment = "created"
	// withJob: JobSet has made its child Job.
	withJob moment = "with a child Job"
	// placed: that Job is resumed, behind its admission.
	placed moment = "with a Job that runs"
	// queued: it has a Workload.
	queued   moment = "queued"
	admitted moment = "admitted"
	// started: it is not suspended any more.
	started moment = "started"
	// bound: a pod of it is bound to a node.
	bound   moment = "bound"
	evicted moment = "evicted"
	// released: its quota is free.
	released moment = "without quota"
	// gone: its last pod is deleted.
	gone moment = "without pods"
	// finished: its Workload is.
	finished moment = "finished"
)

// sightings are the moments of all TrainJobs of a namespace.
type sightings struct {
	stop context.CancelFunc

	mu      sync.Mutex
	moments map[string]map[moment]time.Time
	pods    map[string]map[types.UID]bool
	latest  time.Time
}

// sight watches a namespace from now on.
func sight(ctx context.Context, cluster *world.Cluster, namespace string) (*sightings, error) {
	ctx, cancel := context.WithCancel(ctx)
	s := &sightings{stop: cancel, moments: map[string]map[moment]time.Time{}, pods: map[string]map[types.UID]bool{}, latest: time.Now()}
	tell := func(obj client.Object, deleted bool) { s.note(obj, deleted, time.Now()) }
	err := follow.Start(ctx, cluster, namespace, tell, &trainer.TrainJob{}, &kueue.Workload{}, &batchv1.Job{}, &corev1.Pod{})
	if err != nil {
		cancel()
	}
	return s, err
}

func (s *sightings) note(object client.Object, deleted bool, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.latest = at
	switch obj := object.(type) {
	case *trainer.TrainJob:
		s.mark(obj.Name, created, at, true)
		s.mark(obj.Name, started, at, !ptr.Deref(obj.Spec.Suspend, false))
	case *batchv1.Job:
		s.mark(obj.Labels[jobsetapi.JobSetNameKey], withJob, at, true)
		s.mark(obj.Labels[jobsetapi.JobSetNameKey], placed, at, !ptr.Deref(obj.Spec.Suspend, false))
	case *kueue.Workload:
		s.noteWorkload(obj, at)
	case *corev1.Pod:
		s.notePod(obj, deleted, at)
	}
}

func (s *sightings) noteWorkload(wl *kueue.Workload, at time.Time) {
	owner := metav1.GetControllerOfNoCopy(wl)
	if owner == nil {
		return
	}
	s.mark(owner.Name, queued, at, true)
	for condition, m := range map[string]moment{
		kueue.WorkloadAdmitted: admitted, kueue.WorkloadEvicted: evicted, kueue.WorkloadFinished: finished,
	} {
		s.mark(owner.Name, m, at, apimeta.IsStatusConditionTrue(wl.Status.Conditions, condition))
	}
	_, stopped := s.moments[owner.Name][evicted]
	s.mark(owner.Name, released, at, stopped && wl.Status.Admission == nil)
}

func (s *sightings) notePod(pod *corev1.Pod, deleted bool, at time.Time) {
	job := pod.Labels[jobsetapi.JobSetNameKey]
	if s.pods[job] == nil {
		s.pods[job] = map[types.UID]bool{}
	}
	if !deleted {
		s.pods[job][pod.UID] = true
		s.mark(job, bound, at, pod.Spec.NodeName != "")
		return
	}
	delete(s.pods[job], pod.UID)
	s.mark(job, gone, at, len(s.pods[job]) == 0)
}

// mark notes the first time that something is so.
func (s *sightings) mark(job string, m moment, at time.Time, is bool) {
	if s.moments[job] == nil {
		s.moments[job] = map[moment]time.Time{}
	}
	if _, known := s.moments[job][m]; is && !known {
		s.moments[job][m] = at
	}
}

// forget begins again, for another round of the same jobs.
func (s *sightings) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.moments)
}

// last returns when the latest news came.
func (s *sightings) last() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.latest
}

// latestOf returns when the last job had its moment.
func (s *sightings) latestOf(m moment) time.Time {
	return slices.MaxFunc(append(s.times(m), time.Time{}), time.Time.Compare)
}

// between returns the time from one moment to another, of every job that had both. The two
// come from two watches, so it may be a little less than 0.
func (s *sightings) between(from, to moment) []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []time.Duration
	for _, moments := range s.moments {
		begin, began := moments[from]
		end, ended := moments[to]
		if began && ended {
			all = append(all, end.Sub(begin))
		}
	}
	return all
}

// times returns when the jobs had a moment.
func (s *sightings) times(m moment) []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []time.Time
	for _, moments := range s.moments {
		if at, known := moments[m]; known {
			all = append(all, at)
		}
	}
	return all
}
