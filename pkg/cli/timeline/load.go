// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"context"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// loader reads the facts, and takes note of what the user may not list.
type loader struct {
	client client.Client
	facts  *Facts
	err    error
	// begun is when the job was created: what is older is of another one.
	begun time.Time
	// copied is the Workload that MultiKueue made this one for; nil for a job of this cluster.
	copied *kueue.Workload
}

// load reads all that there is about a TrainJob.
func load(ctx context.Context, c client.Client, namespace, name string) (*Facts, error) {
	job, err := cluster.TrainJob(ctx, c, namespace, name)
	if err != nil {
		return nil, err
	}
	f := &Facts{Now: time.Now(), Job: job}
	f.Gated = f.Job.Labels[kueueconstants.QueueLabel] != "" && hasEntry(f.Job)
	l := &loader{client: c, facts: f, begun: job.CreationTimestamp.Time}
	l.children(ctx)
	l.events(ctx)
	return f, l.err
}

// hasEntry reports whether the manager's entry is there, of whatever generation of Trainer.
func hasEntry(job *trainjob.TrainJob) bool {
	return patch.Of(trainjob.Trainer21).Has(&job.Spec) || patch.Of(trainjob.Trainer23).Has(&job.Spec)
}

func (l *loader) list(ctx context.Context, kind string, into client.ObjectList, options ...client.ListOption) {
	if l.err != nil {
		return
	}
	switch err := l.client.List(ctx, into, append(options, client.InNamespace(l.facts.Job.Namespace))...); {
	case apierrors.IsForbidden(err):
		l.facts.Unseen = append(l.facts.Unseen, kind)
	case err != nil:
		l.err = fmt.Errorf("listing %s: %w", kind, err)
	}
}

func (l *loader) children(ctx context.Context) {
	f := l.facts
	var workloads kueue.WorkloadList
	l.list(ctx, "workloads.kueue.x-k8s.io", &workloads)
	f.Workloads = slices.DeleteFunc(workloads.Items, func(wl kueue.Workload) bool { return !metav1.IsControlledBy(&wl, f.Job) })
	var sets jobsetapi.JobSetList
	l.list(ctx, "jobsets.jobset.x-k8s.io", &sets, client.MatchingFields{metav1.ObjectNameField: f.Job.Name})
	for i := range sets.Items {
		if metav1.IsControlledBy(&sets.Items[i], f.Job) {
			f.JobSet = &sets.Items[i]
		}
	}
	of := client.MatchingLabels{jobsetapi.JobSetNameKey: f.Job.Name}
	var jobs batchv1.JobList
	l.list(ctx, "jobs.batch", &jobs, of)
	var pods corev1.PodList
	l.list(ctx, "pods", &pods, of)
	f.Jobs, f.Pods = jobs.Items, pods.Items
}

// events reads those of the objects, and of pods and Workloads that are gone, which their names
// tell. Events of another job of the same name are older.
func (l *loader) events(ctx context.Context) {
	f := l.facts
	var list corev1.EventList
	l.list(ctx, "events", &list)
	names := map[string]bool{"TrainJob/" + f.Job.Name: true, "JobSet/" + f.Job.Name: true}
	if l.copied != nil {
		names["Workload/"+l.copied.Name] = true
		if f.JobSet == nil {
			f.Jobs = jobsGone(list.Items, f.Job.Name, l.copied)
		}
	}
	for i := range f.Jobs {
		names["Job/"+f.Jobs[i].Name] = true
	}
	for i := range list.Items {
		e := &list.Items[i]
		if workload, made := workloadMade(e, f.Job.Namespace); made && e.InvolvedObject.UID == f.Job.UID {
			names["Workload/"+workload] = true
		}
	}
	for i := range f.Workloads {
		names["Workload/"+f.Workloads[i].Name] = true
	}
	for i := range list.Items {
		e := &list.Items[i]
		ours := names[e.InvolvedObject.Kind+"/"+e.InvolvedObject.Name] || e.InvolvedObject.Kind == "Pod" && jobOf(f, e.InvolvedObject.Name) != ""
		if ours && !firstTime(e).Truncate(time.Second).Before(l.begun) {
			f.Events = append(f.Events, *e)
		}
	}
}
