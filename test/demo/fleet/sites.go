// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
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

func (s site) list(ctx context.Context, list client.ObjectList, options ...client.ListOption) {
	attempt.Succeed(s.List(ctx, list, append(options, client.InNamespace(s.Namespace))...), "%s: listing %T", s.Cluster.Name, list)
}

// states returns how far the manager cluster says that every TrainJob is.
func (s site) states(ctx context.Context) map[string]string {
	var jobs trainer.TrainJobList
	var workloads kueue.WorkloadList
	s.list(ctx, &jobs)
	s.list(ctx, &workloads)
	states := map[string]string{}
	for i := range jobs.Items {
		states[jobs.Items[i].Name] = state(&jobs.Items[i], workloads.Items)
	}
	return states
}

// state is how far a TrainJob of the manager cluster is, in a few words.
func state(job *trainer.TrainJob, workloads []kueue.Workload) string {
	for _, ended := range []string{trainer.TrainJobComplete, trainer.TrainJobFailed} {
		if apimeta.IsStatusConditionTrue(job.Status.Conditions, ended) {
			return ended
		}
	}
	for i := range workloads {
		wl := &workloads[i]
		if !metav1.IsControlledBy(wl, job) {
			continue
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
	return "waits for Kueue"
}

// pods returns those of all TrainJobs here.
func (s site) pods(ctx context.Context) []corev1.Pod {
	var pods corev1.PodList
	s.list(ctx, &pods)
	return pods.Items
}

// running returns the TrainJobs with a pod that runs here, each with its place.
func (s site) running(ctx context.Context) map[string]place {
	places := map[string]place{}
	for _, pod := range s.pods(ctx) {
		if pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil {
			places[pod.Labels[jobsetapi.JobSetNameKey]] = place{s.Cluster.Name, pod.Spec.NodeName, pod.UID}
		}
	}
	return places
}
