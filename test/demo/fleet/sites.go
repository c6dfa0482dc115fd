// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

const (
	team  = "team"
	queue = "demo"
	// check is the AdmissionCheck of the fleet, which sends jobs to the workers.
	check = "workers"
	// gpusOfWorker is the quota of each worker: two jobs of the story.
	gpusOfWorker = "16"
)

// site is a cluster of the fleet.
type site struct {
	*world.Cluster
	name string
}

// open makes the team's namespace and queue. Nothing runs in the manager cluster, whose quota
// has checks in place of a pool.
func (s site) open(ctx context.Context, gpus string, checks ...string) error {
	flavor := kit.Flavor(queue, map[string]string{kit.ProductLabel: kit.H100})
	return s.OpenQueue(ctx, kit.LocalQueue(team, queue, queue), flavor, kit.Quota{GPUs: gpus}, checks...)
}

// isOpen reports whether the team's queue takes jobs.
func (s site) isOpen(ctx context.Context) (bool, error) {
	var lq kueue.LocalQueue
	err := s.Client.Get(ctx, client.ObjectKey{Namespace: team, Name: queue}, &lq)
	return apimeta.IsStatusConditionTrue(lq.Status.Conditions, kueue.LocalQueueActive), err
}

// states returns how far the manager cluster says that every TrainJob is.
func (s site) states(ctx context.Context) (map[string]string, error) {
	var jobs trainer.TrainJobList
	var workloads kueue.WorkloadList
	for _, list := range []client.ObjectList{&jobs, &workloads} {
		if err := s.Client.List(ctx, list, client.InNamespace(team)); err != nil {
			return nil, fmt.Errorf("%s: listing %T: %w", s.name, list, err)
		}
	}
	states := map[string]string{}
	for i := range jobs.Items {
		states[jobs.Items[i].Name] = state(&jobs.Items[i], workloads.Items)
	}
	return states, nil
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
func (s site) pods(ctx context.Context, options ...client.ListOption) ([]corev1.Pod, error) {
	var pods corev1.PodList
	err := s.Client.List(ctx, &pods, append(options, client.InNamespace(team))...)
	if err != nil {
		err = fmt.Errorf("%s: listing pods: %w", s.name, err)
	}
	return pods.Items, err
}

// running returns the TrainJobs with a pod that runs here, each with its place.
func (s site) running(ctx context.Context) (map[string]place, error) {
	pods, err := s.pods(ctx)
	places := map[string]place{}
	for i := range pods {
		if pod := &pods[i]; pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil {
			places[pod.Labels[jobsetapi.JobSetNameKey]] = place{s.name, pod.Spec.NodeName, pod.UID}
		}
	}
	return places, err
}

// finish ends the pods of a TrainJob here.
func (s site) finish(ctx context.Context, job string) error {
	pods, err := s.pods(ctx, client.MatchingLabels{jobsetapi.JobSetNameKey: job})
	for i := range pods {
		before := pods[i].DeepCopy()
		metav1.SetMetaDataAnnotation(&pods[i].ObjectMeta, "localcluster/finish", "succeeded")
		if err := s.Client.Patch(ctx, &pods[i], client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("%s: ending pod %s: %w", s.name, pods[i].Name, err)
		}
	}
	return err
}
