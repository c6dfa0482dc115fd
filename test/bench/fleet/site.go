// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/bench/internal/audit"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// name is that of namespace and queues.
const name = "bench"

// site is a cluster with a queue that has room for every job.
type site struct {
	*world.Cluster
	log *audit.Log
}

// open makes a queue of CPUs. That of the manager cluster is behind an admission check, and its
// flavor names no nodes.
func (s *site) open(ctx context.Context, checks ...string) error {
	// Nodes with GPUs keep other pods away.
	flavor := kit.Flavor(name, map[string]string{kit.ProductLabel: kit.H100}, kit.GPUToleration())
	err := s.OpenQueue(ctx, kit.LocalQueue(name, name, name), flavor, kit.Quota{Of: corev1.ResourceCPU, Amount: "100k"}, checks...)
	if err != nil {
		return err
	}
	if s.log, err = audit.Open(filepath.Join(s.LocalDir(), "logs", "audit.log")); err != nil {
		return err
	}
	// Whether a TrainJob is for another cluster is decided by what Kueue knows when it is created.
	return until(ctx, "LocalQueue", func() (bool, error) {
		var lq kueue.LocalQueue
		err := s.Client.Get(ctx, client.ObjectKey{Namespace: name, Name: name}, &lq)
		return apimeta.IsStatusConditionTrue(lq.Status.Conditions, kueue.LocalQueueActive), err
	})
}

func (s *site) create(ctx context.Context, jobs int) error {
	for i := range jobs {
		job := kit.TrainJob(name, fmt.Sprintf("job-%04d", i)).Queue(name).Request(corev1.ResourceCPU, "10m")
		if err := s.Client.Create(ctx, job.Obj()); err != nil {
			return err
		}
	}
	return nil
}

func (s *site) stopQueue(ctx context.Context, policy kueue.StopPolicy) error {
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: name}}
	return s.Client.Patch(ctx, cq, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"stopPolicy":%q}}`, policy)))
}

// workloads counts the Workloads.
func (s *site) workloads(ctx context.Context) (int, error) {
	var list kueue.WorkloadList
	err := s.Client.List(ctx, &list, client.InNamespace(name))
	return len(list.Items), err
}

// dispatched counts the Workloads that a worker has.
func (s *site) dispatched(ctx context.Context) (int, error) {
	var list kueue.WorkloadList
	if err := s.Client.List(ctx, &list, client.InNamespace(name)); err != nil {
		return 0, err
	}
	n := 0
	for i := range list.Items {
		if list.Items[i].Status.ClusterName != nil {
			n++
		}
	}
	return n, nil
}

// running counts the pods that run.
func (s *site) running(ctx context.Context) (int, error) {
	var list corev1.PodList
	if err := s.Client.List(ctx, &list, client.InNamespace(name), client.HasLabels{jobsetapi.JobSetNameKey}); err != nil {
		return 0, err
	}
	n := 0
	for i := range list.Items {
		if list.Items[i].Status.Phase == corev1.PodRunning {
			n++
		}
	}
	return n, nil
}

// requestsOfManager counts what Kueue's manager cluster has asked of this one since the last time.
func (s *site) requestsOfManager() (int, error) {
	counts, err := s.log.Count(name)
	if err != nil {
		return 0, err
	}
	n := 0
	for request, times := range counts {
		if strings.HasSuffix(request.User, ":multikueue") {
			n += times
		}
	}
	return n, nil
}
