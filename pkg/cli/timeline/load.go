// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/explain"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// factsOf picks what is of a TrainJob that was created at a time: what is older is of another one. copied is the
// Workload that MultiKueue made this one's for; nil for a job of this cluster.
func factsOf(s *explain.Snapshot, job *trainjob.TrainJob, begun time.Time, copied *kueue.Workload) *Facts {
	hasEntry := patch.Of(trainjob.Trainer21).Has(&job.Spec) || patch.Of(trainjob.Trainer23).Has(&job.Spec)
	f := &Facts{Now: s.Now, Job: job, Gated: hasEntry && (copied != nil || job.Labels[kueueconstants.QueueLabel] != ""), Unseen: s.Unseen}
	former := func(made metav1.Time) bool { return made.Time.Before(job.CreationTimestamp.Time) }
	f.Jobs = slices.DeleteFunc(s.Jobs, func(child batchv1.Job) bool { return former(child.CreationTimestamp) })
	f.Pods = slices.DeleteFunc(s.Pods, func(pod corev1.Pod) bool { return former(pod.CreationTimestamp) })
	f.Workloads = slices.DeleteFunc(s.Workloads, func(wl kueue.Workload) bool { return !state.IsControlledBy(&wl, job) })
	for i := range s.JobSets {
		if state.IsControlledBy(&s.JobSets[i], job) {
			f.JobSet = &s.JobSets[i]
		}
	}
	f.pickEvents(s.Events, begun, copied)
	return f
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
	for i := range f.Workloads {
		names["Workload/"+f.Workloads[i].Name] = true
	}
	for i := range all {
		if workload, made := workloadMade(&all[i], f.Job.Namespace); made && all[i].InvolvedObject.UID == f.Job.UID {
			names["Workload/"+workload] = true
		}
	}
	f.Events = kueuelib.Pick(all, func(e *corev1.Event) bool {
		ours := names[e.InvolvedObject.Kind+"/"+e.InvolvedObject.Name] || e.InvolvedObject.Kind == "Pod" && jobOf(f, e.InvolvedObject.Name) != ""
		// Whoever may create events may give them any time.
		at := firstTime(e)
		return ours && !at.Truncate(time.Second).Before(begun) && !at.After(f.Now.Add(time.Minute))
	})
}

// lookInto reads what was made of a job in the workers that MultiKueue gave it to. What is wrong
// with a worker is part of the facts.
func lookInto(ctx context.Context, workers *cluster.Workers, f *Facts) {
	if !f.Job.ForMultiKueue() {
		return
	}
	for i := range f.Workloads {
		wl := &f.Workloads[i]
		assigned := cluster.Assigned(wl)
		for _, name := range givenTo(f.Events, assigned) {
			there := Copy{Worker: Worker{Cluster: name}, last: name == assigned}
			var err error
			if there.Facts, err = loadCopy(ctx, workers, f, wl, name); err != nil {
				there.Problem = err.Error()
			} else {
				for _, kind := range there.Facts.Unseen {
					f.Unseen = append(f.Unseen, fmt.Sprintf("%s of cluster %s", kind, name))
				}
			}
			f.Copies = append(f.Copies, there)
		}
	}
}

// dispatched is what the manager's event says of the start of a job in another cluster.
var dispatched = regexp.MustCompile(`\bruns in cluster (\S+)$`)

// givenTo names the workers that had a job, as far as events of its starts tell, and at last the one
// that is assigned, if one is.
func givenTo(events []corev1.Event, assigned string) []string {
	starts := slices.DeleteFunc(slices.Clone(events), func(e corev1.Event) bool {
		return e.InvolvedObject.Kind != trainjob.GVK.Kind || e.Reason != "Started" || !dispatched.MatchString(e.Message)
	})
	slices.SortStableFunc(starts, func(a, b corev1.Event) int { return firstTime(&a).Compare(firstTime(&b)) })
	var names []string
	for i := range starts {
		if name := dispatched.FindStringSubmatch(starts[i].Message)[1]; name != assigned && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if assigned != "" {
		names = append(names, assigned)
	}
	return names
}

// loadCopy reads all that there is about the copy of a job in a worker. Of one that is gone, events tell.
func loadCopy(ctx context.Context, workers *cluster.Workers, of *Facts, wl *kueue.Workload, name string) (*Facts, error) {
	worker, c, err := workers.Enter(name)
	if err != nil {
		return nil, err
	}
	job, errCopy := worker.Copy(ctx, c, of.Job.Namespace, of.Job.Name, wl.Name)
	gone := errors.Is(errCopy, cluster.ErrNoCopy)
	if errCopy != nil && !gone {
		return nil, errCopy
	}
	s, err := explain.ReadMade(ctx, c, of.Job.Namespace, of.Job.Name)
	if err != nil {
		return nil, worker.Problem(err)
	}
	if gone {
		job = &trainjob.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: of.Job.Namespace, Name: of.Job.Name}}
		s.Jobs, s.Pods = nil, nil // of another one
	}
	f := factsOf(s, job, of.Job.CreationTimestamp.Time, wl)
	if gone && !slices.ContainsFunc(f.Events, func(e corev1.Event) bool { return e.InvolvedObject.Name == wl.Name }) {
		// The name of a Workload is that of one TrainJob: others may have had the same here.
		return nil, errCopy
	}
	return f, nil
}

// jobsGone are the Jobs that events tell of, of a JobSet with a replicated job for each PodSet.
func jobsGone(events []corev1.Event, jobSet string, wl *kueue.Workload) []batchv1.Job {
	var jobs []batchv1.Job
	for _, ps := range wl.Spec.PodSets {
		name := regexp.MustCompile("^" + regexp.QuoteMeta(jobSet+"-"+string(ps.Name)) + `-\d+$`)
		for i := range events {
			of := events[i].InvolvedObject
			known := func(job batchv1.Job) bool { return job.Name == of.Name }
			if of.Kind == "Job" && name.MatchString(of.Name) && !slices.ContainsFunc(jobs, known) {
				jobs = append(jobs, batchv1.Job{})
				jobs[len(jobs)-1].Name = of.Name
			}
		}
	}
	return jobs
}

// milestonesThere are what steps in a worker stand for in the whole: the way through the queue there
// is a part of waiting for an admission check here. Others are the same.
var milestonesThere = map[milestone]milestone{
	queued: copyQueued, quota: copyQuota, admitted: copyAdmitted, created: copied, changed: copied, gated: copied, prepared: copyPrepared,
	quotaFree: noted, waiting: noted, held: copied, unheld: copied, activated: noted,
}

func stepsThere(f *Facts) []Step {
	var all []Step
	for _, there := range f.Copies {
		if there.Facts == nil {
			continue
		}
		for _, s := range stepsIn(there.Facts) {
			s.Cluster = there.Cluster
			switch {
			case s.milestone == created || s.milestone == queued:
				s.Actor, s.Step = Kueue, "copied it from the manager cluster"
			case s.milestone == stopped && s.Actor == JobSet:
				// It says so of one that was made suspended, too.
				s.milestone = copySuspended
			}
			s.milestone = cmp.Or(milestonesThere[s.milestone], s.milestone)
			all = append(all, s)
		}
	}
	return all
}
