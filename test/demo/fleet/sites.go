// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/attempt"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

const (
	// check is the AdmissionCheck of the fleet, which sends jobs to the workers.
	check = "workers"
	// gpusOfWorker is the quota of each worker: two jobs of the story.
	gpusOfWorker = "16"
)

// site is the team's namespace and queue in a cluster of the fleet. What fails ends the story.
type site struct{ *world.World }

// open makes them. Nothing runs in the manager cluster, whose quota has checks in place of a pool.
func open(ctx context.Context, cluster *world.Cluster, gpus string, checks ...string) site {
	s := site{world.New(ctx, attempt.Gomega(), io.Discard, cluster, "team", "demo")}
	s.Pool(ctx, s.Flavor("h100", map[string]string{kit.ProductLabel: kit.H100}), gpus, checks...)
	return s
}

// state is how far the manager cluster says that a TrainJob is, in a few words.
func (s site) state(ctx context.Context, name string) string {
	job, wl := s.TrainJob(ctx, name), s.Workload(ctx, name)
	for _, ended := range []string{trainer.TrainJobComplete, trainer.TrainJobFailed} {
		if apimeta.IsStatusConditionTrue(job.Status.Conditions, ended) {
			return ended
		}
	}
	if wl == nil {
		return "waits for Kueue"
	}
	worker := ptr.Deref(wl.Status.ClusterName, "")
	switch {
	case worker == "":
		return "waits for a worker"
	case apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadAdmitted):
		return "in " + worker
	}
	return "on its way to " + worker
}

// running is where a TrainJob has a pod that runs here, if it has one.
func (s site) running(ctx context.Context, name string) (at place, runs bool) {
	for _, pod := range s.Pods(ctx, name) {
		if pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil {
			return place{s.Cluster.Name, pod.Spec.NodeName, pod.UID}, true
		}
	}
	return place{}, false
}
