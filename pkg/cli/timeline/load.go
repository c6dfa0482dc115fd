// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/explain"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// load reads all that there is about a TrainJob.
func load(ctx context.Context, c client.Client, namespace, name string) (*Facts, error) {
	job, err := cluster.TrainJob(ctx, c, namespace, name)
	if err != nil {
		return nil, err
	}
	s, err := explain.ReadMade(ctx, c, namespace, name)
	if err != nil {
		return nil, err
	}
	return factsOf(s, job, job.CreationTimestamp.Time, nil), nil
}

// factsOf picks what is of a TrainJob that was created at a time: what is older is of another one. copied is the
// Workload that MultiKueue made this one's for; nil for a job of this cluster.
func factsOf(s *explain.Snapshot, job *trainjob.TrainJob, begun time.Time, copied *kueue.Workload) *Facts {
	f := &Facts{Now: s.Now, Job: job, Gated: hasEntry(job) && (copied != nil || job.Labels[kueueconstants.QueueLabel] != ""), Unseen: s.Unseen, Jobs: s.Jobs, Pods: s.Pods}
	f.Workloads = slices.DeleteFunc(s.Workloads, func(wl kueue.Workload) bool { return !metav1.IsControlledBy(&wl, job) })
	for i := range s.JobSets {
		if metav1.IsControlledBy(&s.JobSets[i], job) {
			f.JobSet = &s.JobSets[i]
		}
	}
	f.pickEvents(s.Events, begun, copied)
	return f
}

// hasEntry reports whether the manager's entry is there, of whatever generation of Trainer.
func hasEntry(job *trainjob.TrainJob) bool {
	return patch.Of(trainjob.Trainer21).Has(&job.Spec) || patch.Of(trainjob.Trainer23).Has(&job.Spec)
}

// pickEvents takes those of the objects, and of pods and Workloads that are gone, which their names
// tell. Events of another job of the same name are older.
func (f *Facts) pickEvents(all []corev1.Event, begun time.Time, copied *kueue.Workload) {
	names := map[string]bool{"TrainJob/" + f.Job.Name: true, "JobSet/" + f.Job.Name: true}
	if copied != nil {
		names["Workload/"+copied.Name] = true
		if f.JobSet == nil {
			f.Jobs = jobsGone(all, f.Job.Name, copied)
		}
	}
	for i := range f.Jobs {
		names["Job/"+f.Jobs[i].Name] = true
	}
	for i := range all {
		e := &all[i]
		if workload, made := workloadMade(e, f.Job.Namespace); made && e.InvolvedObject.UID == f.Job.UID {
			names["Workload/"+workload] = true
		}
	}
	for i := range f.Workloads {
		names["Workload/"+f.Workloads[i].Name] = true
	}
	for i := range all {
		e := &all[i]
		ours := names[e.InvolvedObject.Kind+"/"+e.InvolvedObject.Name] || e.InvolvedObject.Kind == "Pod" && jobOf(f, e.InvolvedObject.Name) != ""
		if ours && !firstTime(e).Truncate(time.Second).Before(begun) {
			f.Events = append(f.Events, *e)
		}
	}
}
