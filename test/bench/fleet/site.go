// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/attempt"
	"github.com/kueue-trainer/kueue-trainer/test/bench/internal/work"
	"github.com/kueue-trainer/kueue-trainer/test/kit/logs"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// name is that of the namespace.
const name = "bench"

// site is a cluster with a queue that has room for every job.
type site struct {
	*world.Cluster
	log *logs.Audit
}

// open makes a queue. That of the manager cluster is behind an admission check.
func open(ctx context.Context, cluster *world.Cluster, checks ...string) *site {
	work.MakeQueue(ctx, cluster, name, checks...)
	return &site{Cluster: cluster, log: attempt.Must(logs.OpenAudit(filepath.Join(cluster.LocalDir(), "logs", "audit.log")))}
}

// workloads counts the Workloads, and those that a worker has.
func (s *site) workloads(ctx context.Context) (all, dispatched int, err error) {
	var list kueue.WorkloadList
	err = s.Client.List(ctx, &list, client.InNamespace(name))
	for i := range list.Items {
		if list.Items[i].Status.ClusterName != nil {
			dispatched++
		}
	}
	return len(list.Items), dispatched, err
}

// running counts the pods that run.
func (s *site) running(ctx context.Context) (n int, err error) {
	var list corev1.PodList
	err = s.Client.List(ctx, &list, client.InNamespace(name), client.HasLabels{jobsetapi.JobSetNameKey})
	for i := range list.Items {
		if list.Items[i].Status.Phase == corev1.PodRunning {
			n++
		}
	}
	return n, err
}

// requestsOfManager counts what Kueue's manager cluster has asked of this one since the last time.
func (s *site) requestsOfManager() int {
	n := 0
	for request, times := range attempt.Must(s.log.Count(name)) {
		if strings.HasSuffix(request.User, ":multikueue") {
			n += times
		}
	}
	return n
}
