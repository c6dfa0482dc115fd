// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"sync"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"golang.org/x/sync/errgroup"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/attempt"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/logs"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
	"github.com/kueue-trainer/kueue-trainer/test/record"
)

const (
	// audited begins the name of the namespace whose requests the API server logs with their bodies.
	audited = "audited"
	// creators is how many TrainJobs are being created at a time.
	creators = 10
	// patience ends a measurement that waits for what does not come; 12,000 TrainJobs take two busy cores half an hour.
	patience = 2 * time.Hour
	// quiet is how long nothing may change until all is said to be done.
	quiet = 2 * time.Second
	// lookEvery is how often it is asked whether something has come.
	lookEvery = 50 * time.Millisecond
)

// site is a namespace whose queue has room for every job, in a cluster that tells who asks it for what.
type site struct {
	*world.World
	column
	results *Results
	seen    *sightings
	log     *logs.Audit
	pids    map[string]int
	token   string
	// made is how many TrainJobs there have been.
	made int
}

// newSite waits until the queue takes jobs. Its flavor is of nodes by two labels, as GPU pools have them. The jobs ask
// for CPUs: nodes have GPUs for a few hundred of them only.
func newSite(ctx context.Context, cluster *world.Cluster, c column, results *Results) *site {
	g := attempt.Gomega()
	g.SetDefaultEventuallyPollingInterval(lookEvery)
	s := &site{World: world.New(ctx, g, io.Discard, cluster, audited, "bench"), column: c, results: results, pids: attempt.Must(cluster.PIDs())}
	flavor := kit.Flavor(s.Name("cpus"), map[string]string{kit.ProductLabel: kit.H100, kit.FamilyLabel: "hopper"}, kit.GPUToleration())
	s.Make(ctx, kit.Queue(s.LocalQueue(), flavor, kit.Quota{Of: corev1.ResourceCPU, Amount: "100k"})...)
	s.ready(ctx)
	s.log = attempt.Must(logs.OpenAudit(filepath.Join(cluster.LocalDir(), "logs", "audit.log")))
	s.seen, s.token = attempt.Must(sight(ctx, cluster, s.Namespace)), s.Token(ctx, "kueue-trainer-metrics-reader")
	return s
}

func (s *site) ready(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	s.EventuallyIs(ctx, &corev1.ServiceAccount{}, "default")
	s.EventuallyIs(ctx, &kueue.LocalQueue{}, "queue", world.True(kueue.LocalQueueActive))
}

// stopQueue sets whether the queue admits, holds, or holds and evicts.
func (s *site) stopQueue(ctx context.Context, policy kueue.StopPolicy) {
	s.SetStopPolicy(ctx, kit.ClusterQueue(s.Name("gpus")), policy)
}

// create makes n TrainJobs of one pod, some at a time, as fast as the API server takes them.
func (s *site) create(ctx context.Context, n, atATime int) {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atATime)
	for range n {
		job := s.Job(fmt.Sprintf("job-%04d", s.made)).Request(corev1.ResourceCPU, "1").Obj()
		s.made++
		group.Go(func() error { return s.Create(ctx, job) })
	}
	attempt.Succeed(group.Wait())
}

// finish lets the pods of the TrainJobs succeed, all or some.
func (s *site) finish(ctx context.Context, some ...client.ListOption) {
	var pods corev1.PodList
	attempt.Succeed(s.List(ctx, &pods, append(some, client.InNamespace(s.Namespace))...))
	attempt.Succeed(world.EndPods(ctx, s, pods.Items, "succeeded"))
}

// clear deletes all TrainJobs, and forgets what was seen of them.
func (s *site) clear(ctx context.Context) {
	s.DeleteJobs(ctx)
	s.EventuallyEmpty(ctx)
	s.settled(ctx)
	s.seen.forget()
}

func (s *site) used() map[string]usage {
	all := map[string]usage{}
	for name, pid := range s.pids {
		attempt.Succeed(attempt.To(func() { all[name] = usageOf(pid) }), "%s", name)
	}
	return all
}

func until(ctx context.Context, what string, met func() bool) {
	err := wait.PollUntilContextCancel(ctx, lookEvery, true, func(context.Context) (bool, error) { return met(), nil })
	attempt.Succeed(err, "waiting for %s", what)
}

// all waits until a moment has come for n jobs.
func (s *site) all(ctx context.Context, n int, m moment) {
	until(ctx, fmt.Sprintf("%d jobs %s", n, m), func() bool { return len(s.seen.times(m)) >= n })
}

// settled waits until nothing changes any more.
func (s *site) settled(ctx context.Context) {
	until(ctx, "a quiet cluster", func() bool { return time.Since(s.seen.last()) > quiet })
}

// suspended waits until n jobs wait with all that Trainer and JobSet make for them.
func (s *site) suspended(ctx context.Context, n int) {
	s.all(ctx, n, queued)
	s.all(ctx, n, withJob)
}

// hold lets nothing be admitted, and returns once Kueue has taken note.
func (s *site) hold(ctx context.Context) {
	s.stopQueue(ctx, kueue.Hold)
	s.EventuallyIs(ctx, &kueue.ClusterQueue{}, s.Name("gpus"), world.Condition(kueue.ClusterQueueActive, metav1.ConditionFalse))
}

type moment string

// Moments of a TrainJob. The API's timestamps count seconds, so they are taken when a watch brings the news.
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
	mu      sync.Mutex
	moments map[string]map[moment]time.Time
	pods    map[string]map[types.UID]bool
	latest  time.Time
}

// sight notes them until ctx ends.
func sight(ctx context.Context, cluster *world.Cluster, namespace string) (*sightings, error) {
	s := &sightings{moments: map[string]map[moment]time.Time{}, pods: map[string]map[types.UID]bool{}, latest: time.Now()}
	tell := func(obj client.Object, deleted bool) { s.note(obj, deleted, time.Now()) }
	return s, record.Follow(ctx, cluster.Config, cluster.Client.Scheme(), namespace, tell, &trainer.TrainJob{}, &kueue.Workload{}, &batchv1.Job{}, &corev1.Pod{})
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

func (s *sightings) last() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.latest
}

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
