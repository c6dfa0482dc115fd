// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/attempt"
	"github.com/kueue-trainer/kueue-trainer/test/bench/internal/usage"
	"github.com/kueue-trainer/kueue-trainer/test/bench/internal/work"
	"github.com/kueue-trainer/kueue-trainer/test/kit/logs"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

const (
	// namespace is the one whose requests the API server logs with their bodies.
	namespace = "audited"
	// creators is how many TrainJobs are being created at a time.
	creators = 10
	// patience ends a wait for what does not come; 12,000 TrainJobs take two busy cores half an hour.
	patience = 2 * time.Hour
	// quiet is how long nothing may change until all is said to be done.
	quiet = 2 * time.Second
)

// site is a cluster with a queue that has room for every job. What fails ends the measurement.
type site struct {
	*world.Cluster
	column
	results *Results
	log     *logs.Audit
	seen    *sightings
	pids    map[string]int
	token   string
	// made is how many TrainJobs there have been.
	made int
}

func newSite(ctx context.Context, cluster *world.Cluster, c column, results *Results) *site {
	work.MakeQueue(ctx, cluster, namespace)
	return &site{
		Cluster: cluster, column: c, results: results, pids: attempt.Must(cluster.PIDs()),
		log:   attempt.Must(logs.OpenAudit(filepath.Join(cluster.LocalDir(), "logs", "audit.log"))),
		seen:  attempt.Must(sight(ctx, cluster, namespace)),
		token: metricsToken(ctx, cluster.Client),
	}
}

// stopQueue sets whether the queue admits, holds, or holds and evicts.
func (s *site) stopQueue(ctx context.Context, policy kueue.StopPolicy) {
	work.StopQueue(ctx, s.Client, policy)
}

// create makes n TrainJobs of one pod, some at a time, as fast as the API server takes them.
func (s *site) create(ctx context.Context, n, atATime int) {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atATime)
	for range n {
		job := work.Job(namespace, s.made, "1")
		s.made++
		group.Go(func() error { return s.Client.Create(ctx, job) })
	}
	attempt.Succeed(group.Wait())
}

// finish lets the pods of the TrainJobs succeed, all or some.
func (s *site) finish(ctx context.Context, some ...client.ListOption) {
	var pods corev1.PodList
	attempt.Succeed(s.Client.List(ctx, &pods, append(some, client.InNamespace(namespace))...))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(creators)
	for i := range pods.Items {
		group.Go(func() error {
			return s.Client.Patch(ctx, &pods.Items[i], client.RawPatch("application/merge-patch+json",
				[]byte(`{"metadata":{"annotations":{"localcluster/finish":"succeeded"}}}`)))
		})
	}
	attempt.Succeed(group.Wait())
}

// clear deletes all TrainJobs, and forgets what was seen of them.
func (s *site) clear(ctx context.Context) {
	attempt.Succeed(s.Client.DeleteAllOf(ctx, &trainer.TrainJob{}, client.InNamespace(namespace)))
	s.until(ctx, "TrainJobs and pods are gone", func() (bool, error) {
		var pods corev1.PodList
		var jobs trainer.TrainJobList
		if err := s.Client.List(ctx, &pods, client.InNamespace(namespace), client.Limit(1)); err != nil {
			return false, err
		}
		err := s.Client.List(ctx, &jobs, client.InNamespace(namespace), client.Limit(1))
		return len(pods.Items)+len(jobs.Items) == 0, err
	})
	s.settled(ctx)
	s.seen.forget()
}

// used returns what every component has used so far.
func (s *site) used() map[string]usage.Usage {
	all := map[string]usage.Usage{}
	for name, pid := range s.pids {
		u, err := usage.Read(pid)
		attempt.Succeed(err, "%s", name)
		all[name] = u
	}
	return all
}

// until waits for a condition.
func (s *site) until(ctx context.Context, what string, met func() (bool, error)) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	work.Until(ctx, 50*time.Millisecond, what, met)
}

// all waits until a moment has come for n jobs.
func (s *site) all(ctx context.Context, n int, m moment) {
	s.until(ctx, fmt.Sprintf("%d jobs %s", n, m), func() (bool, error) { return len(s.seen.times(m)) >= n, nil })
}

// settled waits until nothing changes any more.
func (s *site) settled(ctx context.Context) {
	s.until(ctx, "a quiet cluster", func() (bool, error) { return time.Since(s.seen.last()) > quiet, nil })
}

// suspended waits until n jobs wait with all that Trainer and JobSet make for them.
func (s *site) suspended(ctx context.Context, n int) {
	s.all(ctx, n, queued)
	s.all(ctx, n, withJob)
}

// hold lets nothing be admitted, and returns once Kueue has taken note.
func (s *site) hold(ctx context.Context) {
	s.stopQueue(ctx, kueue.Hold)
	s.until(ctx, "a ClusterQueue on hold", func() (bool, error) {
		var cq kueue.ClusterQueue
		err := s.Client.Get(ctx, client.ObjectKey{Name: work.Queue}, &cq)
		active := apimeta.IsStatusConditionTrue(cq.Status.Conditions, kueue.ClusterQueueActive)
		return ptr.Deref(cq.Spec.StopPolicy, kueue.None) == kueue.Hold && !active, err
	})
}
