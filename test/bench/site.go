// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/bench/internal/audit"
	"github.com/kueue-trainer/kueue-trainer/test/bench/internal/usage"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

const (
	// nodes is the number of GPU nodes. The half of them that the flavor is about has room
	// for 3,300 pods.
	nodes = 60
	// creators is how many TrainJobs are being created at a time.
	creators = 10
	queue    = "bench"
)

// site is a cluster with a queue that has room for every job.
type site struct {
	*world.Cluster
	namespace string
	log       *audit.Log
	seen      *sightings
	pids      map[string]int
}

func newSite(ctx context.Context, cluster *world.Cluster, namespace string) (*site, error) {
	s := &site{Cluster: cluster, namespace: namespace}
	var err error
	if s.pids, err = cluster.PIDs(); err != nil {
		return nil, err
	}
	if err := s.makeQueue(ctx); err != nil {
		return nil, err
	}
	if s.log, err = audit.Open(filepath.Join(cluster.LocalDir(), "logs", "audit.log")); err != nil {
		return nil, err
	}
	s.seen, err = follow(ctx, cluster.Config, cluster.Client.Scheme(), namespace)
	return s, err
}

func (s *site) close() { s.seen.stop() }

// makeQueue makes one flavor of nodes by two labels, as GPU pools have them, and a queue.
// The jobs ask for CPUs: 60 nodes have GPUs for a few hundred of them only.
func (s *site) makeQueue(ctx context.Context) error {
	flavor := kit.Flavor(queue, map[string]string{kit.ProductLabel: kit.H100, kit.FamilyLabel: "hopper"}, kit.GPUToleration())
	if err := s.OpenQueue(ctx, kit.LocalQueue(s.namespace, queue, queue), flavor, kit.Quota{Of: corev1.ResourceCPU, Amount: "100k"}); err != nil {
		return err
	}
	return s.until(ctx, "default ServiceAccount", func() (bool, error) {
		err := s.Client.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: "default"}, &corev1.ServiceAccount{})
		return err == nil, client.IgnoreNotFound(err)
	})
}

// stopQueue sets whether the queue admits, holds, or holds and evicts.
func (s *site) stopQueue(ctx context.Context, policy kueue.StopPolicy) error {
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: queue}}
	return s.Client.Patch(ctx, cq, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"stopPolicy":%q}}`, policy)))
}

// create makes TrainJobs of one pod, some at a time, as fast as the API server takes them.
func (s *site) create(ctx context.Context, from, to, atATime int) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atATime)
	for i := from; i < to; i++ {
		group.Go(func() error {
			job := kit.TrainJob(s.namespace, fmt.Sprintf("job-%04d", i)).Queue(queue).Request(corev1.ResourceCPU, "1")
			return s.Client.Create(ctx, job.Obj())
		})
	}
	return group.Wait()
}

// finish lets all pods succeed.
func (s *site) finish(ctx context.Context) error {
	var pods corev1.PodList
	if err := s.Client.List(ctx, &pods, client.InNamespace(s.namespace)); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(creators)
	for i := range pods.Items {
		group.Go(func() error {
			return s.Client.Patch(ctx, &pods.Items[i], client.RawPatch("application/merge-patch+json",
				[]byte(`{"metadata":{"annotations":{"localcluster/finish":"succeeded"}}}`)))
		})
	}
	return group.Wait()
}

// used returns what every component has used so far.
func (s *site) used() (map[string]usage.Usage, error) {
	all := map[string]usage.Usage{}
	for name, pid := range s.pids {
		u, err := usage.Read(pid)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all[name] = u
	}
	return all, nil
}

// usedSince returns what every component has used after an earlier reading.
func (s *site) usedSince(earlier map[string]usage.Usage) (map[string]usage.Usage, error) {
	all, err := s.used()
	for name, u := range all {
		all[name] = u.Since(earlier[name])
	}
	return all, err
}

const (
	// patience ends a wait for what does not come; 12,000 TrainJobs take two busy cores half an hour.
	patience = 2 * time.Hour
	// quiet is how long nothing may change until all is said to be done.
	quiet = 3 * time.Second
)

// until waits for a condition.
func (s *site) until(ctx context.Context, what string, met func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if ok, err := met(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", what, ctx.Err())
		case <-tick.C:
		}
	}
}

// all waits until a moment has come for n jobs.
func (s *site) all(ctx context.Context, n int, m moment) error {
	return s.until(ctx, fmt.Sprintf("%d jobs %s", n, m), func() (bool, error) {
		if err := s.seen.err(); err != nil {
			return false, err
		}
		return s.seen.count(m) >= n, nil
	})
}

// settled waits until nothing changes any more.
func (s *site) settled(ctx context.Context) error {
	return s.until(ctx, "a quiet cluster", func() (bool, error) {
		return time.Since(s.seen.last()) > quiet, s.seen.err()
	})
}

// suspended waits until n jobs wait with all that Trainer and JobSet make for them.
func (s *site) suspended(ctx context.Context, n int) error {
	if err := s.all(ctx, n, queued); err != nil {
		return err
	}
	return s.all(ctx, n, made)
}

// hold lets nothing be admitted, and says so once Kueue has taken note.
func (s *site) hold(ctx context.Context) error {
	if err := s.stopQueue(ctx, kueue.Hold); err != nil {
		return err
	}
	return s.until(ctx, "a ClusterQueue on hold", func() (bool, error) {
		var cq kueue.ClusterQueue
		err := s.Client.Get(ctx, client.ObjectKey{Name: queue}, &cq)
		return ptr.Deref(cq.Spec.StopPolicy, kueue.None) == kueue.Hold && !active(&cq), err
	})
}

func active(cq *kueue.ClusterQueue) bool {
	for _, c := range cq.Status.Conditions {
		if c.Type == kueue.ClusterQueueActive {
			return c.Status == metav1.ConditionTrue
		}
	}
	return false
}
