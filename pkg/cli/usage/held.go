// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"context"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/ledger"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// view is what the cluster has of TrainJobs now.
type view struct {
	jobs      map[types.UID]*trainjob.TrainJob
	workloads []kueue.Workload
	// children are the Jobs by the JobSet's name, which is that of the TrainJob.
	children  map[types.NamespacedName][]batchv1.Job
	userLabel string
}

// readView reads a namespace, or all.
func readView(ctx context.Context, c client.Reader, namespace, userLabel string) (*view, error) {
	jobs, err := cluster.TrainJobs(ctx, c, namespace)
	if err != nil {
		return nil, err
	}
	v := &view{jobs: map[types.UID]*trainjob.TrainJob{}, children: map[types.NamespacedName][]batchv1.Job{}, userLabel: userLabel}
	for i := range jobs {
		v.jobs[jobs[i].UID] = &jobs[i]
	}
	var workloads kueue.WorkloadList
	if err := c.List(ctx, &workloads, client.InNamespace(namespace)); err != nil {
		return nil, unread("Workloads", err)
	}
	v.workloads = slices.DeleteFunc(workloads.Items, func(wl kueue.Workload) bool { return !ledger.OfTrainJob(&wl) })
	var children batchv1.JobList
	if err := c.List(ctx, &children, client.InNamespace(namespace), client.HasLabels{jobsetapi.JobSetNameKey}); err != nil {
		return nil, unread("Jobs", err)
	}
	for _, job := range children.Items {
		name := types.NamespacedName{Namespace: job.Namespace, Name: job.Labels[jobsetapi.JobSetNameKey]}
		v.children[name] = append(v.children[name], job)
	}
	return v, nil
}

func unread(kind string, err error) error {
	if apierrors.IsForbidden(err) {
		return exit.With(exit.Unseen, fmt.Errorf("you may not list %s: name a namespace of yours with -n, or ask an admin for ClusterRole kueue-batch-admin-role", kind))
	}
	return fmt.Errorf("reading %s: %w", kind, err)
}

// bill returns what the Workloads prove of a time, and what they do not.
func (v *view) bill(from, to time.Time) ([]ledger.Total, []string) {
	waits := v.waitsForPods()
	readings := make([]ledger.Reading, 0, len(v.workloads))
	for i := range v.workloads {
		readings = append(readings, ledger.Read(&v.workloads[i], v.facts(&v.workloads[i], waits)))
	}
	held, ended := ledger.Prove(readings, from, to)
	return append(held, ended...), []string{
		"this is only what the Workloads in the cluster tell now: jobs that are gone, and runs that were evicted, are missing; --prometheus has the whole bill",
	}
}

// waitsForPods reports whether Kueue waits for pods: then some Workload says that they are ready.
func (v *view) waitsForPods() bool {
	return slices.ContainsFunc(v.workloads, func(wl kueue.Workload) bool {
		return apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadPodsReady) != nil
	})
}

func (v *view) facts(wl *kueue.Workload, waits bool) ledger.Facts {
	facts := ledger.Facts{WaitsForPods: waits}
	job := v.jobs[metav1.GetControllerOfNoCopy(wl).UID]
	if job == nil {
		return facts
	}
	facts.JobEnded, facts.Outcome = ledger.EndOf(job)
	if v.userLabel != "" {
		facts.User = job.Labels[v.userLabel]
	}
	facts.Started = ledger.StartOf(v.children[client.ObjectKeyFromObject(job)])
	return facts
}
