// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/attempt"
	"github.com/kueue-trainer/kueue-trainer/test/bench/internal/work"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

const (
	// audited begins the name of the namespace whose requests the API server logs with their bodies.
	audited = "audited"
	// creators is how many TrainJobs are being created at a time.
	creators = 10
	// patience ends a wait for what does not come; 12,000 TrainJobs take two busy cores half an hour.
	patience = 2 * time.Hour
	// quiet is how long nothing may change until all is said to be done.
	quiet = 2 * time.Second
)

// site is a cluster with a queue that has room for every job. What fails ends the measurement.
type site struct {
	*work.Site
	column
	results *Results
	seen    *sightings
	pids    map[string]int
	token   string
	// made is how many TrainJobs there have been.
	made int
}

func newSite(ctx context.Context, cluster *world.Cluster, c column, results *Results) *site {
	s := &site{Site: work.Open(ctx, cluster, audited), column: c, results: results, pids: attempt.Must(cluster.PIDs())}
	s.seen, s.token = attempt.Must(sight(ctx, cluster, s.Namespace)), s.Token(ctx, "kueue-trainer-metrics-reader")
	return s
}

// create makes n TrainJobs of one pod, some at a time, as fast as the API server takes them.
func (s *site) create(ctx context.Context, n, atATime int) {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atATime)
	for range n {
		job := s.OnePod(s.made, "1")
		s.made++
		group.Go(func() error { return s.Create(ctx, job) })
	}
	attempt.Succeed(group.Wait())
}

// finish lets the pods of the TrainJobs succeed, all or some.
func (s *site) finish(ctx context.Context, some ...client.ListOption) {
	var pods corev1.PodList
	attempt.Succeed(s.List(ctx, &pods, append(some, client.InNamespace(s.Namespace))...))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(creators)
	for i := range pods.Items {
		group.Go(func() error {
			return s.Patch(ctx, &pods.Items[i], client.RawPatch("application/merge-patch+json",
				[]byte(`{"metadata":{"annotations":{"localcluster/finish":"succeeded"}}}`)))
		})
	}
	attempt.Succeed(group.Wait())
}

// clear deletes all TrainJobs, and forgets what was seen of them.
func (s *site) clear(ctx context.Context) {
	patient, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s.DeleteJobs(patient)
	s.EventuallyEmpty(patient)
	s.settled(ctx)
	s.seen.forget()
}

// used returns what every component has used so far.
func (s *site) used() map[string]usage {
	all := map[string]usage{}
	for name, pid := range s.pids {
		u, err := usageOf(pid)
		attempt.Succeed(err, "%s", name)
		all[name] = u
	}
	return all
}

// until waits for a condition.
func (s *site) until(ctx context.Context, what string, met func() bool) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	work.Until(ctx, 50*time.Millisecond, what, met)
}

// all waits until a moment has come for n jobs.
func (s *site) all(ctx context.Context, n int, m moment) {
	s.until(ctx, fmt.Sprintf("%d jobs %s", n, m), func() bool { return len(s.seen.times(m)) >= n })
}

// settled waits until nothing changes any more.
func (s *site) settled(ctx context.Context) {
	s.until(ctx, "a quiet cluster", func() bool { return time.Since(s.seen.last()) > quiet })
}

// suspended waits until n jobs wait with all that Trainer and JobSet make for them.
func (s *site) suspended(ctx context.Context, n int) {
	s.all(ctx, n, queued)
	s.all(ctx, n, withJob)
}

// hold lets nothing be admitted, and returns once Kueue has taken note.
func (s *site) hold(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s.StopQueue(ctx, kueue.Hold)
	s.EventuallyIs(ctx, &kueue.ClusterQueue{}, s.Name("gpus"), world.Condition(kueue.ClusterQueueActive, metav1.ConditionFalse))
}
