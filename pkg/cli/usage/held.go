// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"context"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/ledger"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// view is what the cluster has of TrainJobs now.
type view struct {
	jobs      map[types.UID]*trainjob.TrainJob
	workloads []kueue.Workload
	// children are the Jobs by the JobSet's name, which is that of the TrainJob.
	children map[types.NamespacedName][]batchv1.Job
	// there has all Workloads, also of others than TrainJobs.
	there map[types.UID]bool
	// waitsForPods is whether Kueue waits for pods.
	waitsForPods bool
	// userLabel is the label of TrainJobs that says whose they are; userUnknown is set where the
	// manager has one that may not be read.
	userLabel   string
	userUnknown bool
}

// readView reads a namespace, or all.
func readView(ctx context.Context, c client.Reader, namespace string) (*view, error) {
	jobs, err := cluster.TrainJobs(ctx, c, namespace)
	if err != nil {
		return nil, err
	}
	v := &view{
		jobs:     kueuelib.Index(jobs, func(job *trainjob.TrainJob) types.UID { return job.UID }),
		children: map[types.NamespacedName][]batchv1.Job{}, there: map[types.UID]bool{},
	}
	var workloads kueue.WorkloadList
	if err := c.List(ctx, &workloads, client.InNamespace(namespace)); err != nil {
		return nil, cluster.Unread("list", "Workloads", namespace, err)
	}
	for _, wl := range workloads.Items {
		if v.there[wl.UID] = true; ledger.OfTrainJob(&wl) {
			v.workloads = append(v.workloads, wl)
		}
	}
	var children batchv1.JobList
	if err := c.List(ctx, &children, client.InNamespace(namespace), client.HasLabels{jobsetapi.JobSetNameKey}); err != nil {
		return nil, cluster.Unread("list", "Jobs", namespace, err)
	}
	for _, job := range children.Items {
		// Anybody may give a Job the label.
		if owner := metav1.GetControllerOfNoCopy(&job); owner == nil || owner.Kind != "JobSet" || owner.Name != job.Labels[jobsetapi.JobSetNameKey] {
			continue
		}
		name := types.NamespacedName{Namespace: job.Namespace, Name: job.Labels[jobsetapi.JobSetNameKey]}
		v.children[name] = append(v.children[name], job)
	}
	v.waitsForPods = waitsForPods(ctx, c, v.workloads)
	return v, nil
}

// waitsForPods reports whether Kueue waits for pods. For who may not read its configuration it does
// where some Workload says that they are ready.
func waitsForPods(ctx context.Context, c client.Reader, workloads []kueue.Workload) bool {
	if cfg, err := cluster.KueueConfiguration(ctx, c); err == nil && cfg != nil {
		return cfg.WaitForPodsReady != nil
	}
	return slices.ContainsFunc(workloads, func(wl kueue.Workload) bool {
		return apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadPodsReady) != nil
	})
}

func (v *view) readings() []ledger.Reading {
	return kueuelib.Map(v.workloads, func(wl *kueue.Workload) ledger.Reading { return ledger.Read(wl, v.facts(wl)) })
}

func (v *view) facts(wl *kueue.Workload) ledger.Facts {
	job := v.jobs[metav1.GetControllerOfNoCopy(wl).UID]
	facts := ledger.FactsOf(job, v.userLabel)
	facts.WaitsForPods, facts.UserUnknown = v.waitsForPods, facts.UserUnknown || v.userUnknown
	if job != nil {
		facts.Started = ledger.StartOf(job, wl, v.children[client.ObjectKeyFromObject(job)])
	}
	return facts
}
