// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"slices"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// lack is what an admitted job is without, and could not run without.
type lack struct {
	// what says who has not made or resumed what.
	what string
	// kind and asked are the objects that events about it regard; none where quote is all.
	kind  string
	asked []types.UID
	// quote is a refusal that is known without asking.
	quote string
	// live reports whether the job has a pod nevertheless, pods whether it has one, or had one that
	// failed and that the Job controller recreates in its own time.
	live, pods bool
	// made reports whether all child Jobs that are due are there and had all their pods once.
	made bool
}

// lackOf returns what a resumed job is without, or nil. Pods that are there, in whatever
// state, are for the scheduler, the kubelet and Kueue's waitForPodsReady.
func lackOf(job *trainjob.TrainJob, js *jobsetapi.JobSet, jobs []batchv1.Job) *lack {
	byTrainer := func(what string) *lack {
		return (&lack{what: what, kind: trainjob.GVK.Kind, asked: []types.UID{job.UID}}).count(jobs)
	}
	switch {
	case js == nil:
		return byTrainer("Trainer has not made JobSet " + job.Name)
	case js.Status.TerminalState != "":
		return nil
	case !js.DeletionTimestamp.IsZero():
		return byTrainer("JobSet " + js.Name + " is still being deleted")
	case ptr.Deref(js.Spec.Suspend, false):
		return byTrainer("Trainer has not resumed JobSet " + js.Name)
	}
	due := podset.Due(js, statusesOf(jobs))
	if l := lackOfJobs(js, due, jobs); l != nil {
		return l
	}
	return lackOfPods(due, jobs)
}

// lackOfJobs looks for child Jobs that JobSet has not made or not resumed.
func lackOfJobs(js *jobsetapi.JobSet, due []jobsetapi.ReplicatedJob, jobs []batchv1.Job) *lack {
	byJobSet := func(format string, args ...any) *lack {
		return (&lack{what: fmt.Sprintf(format, args...), kind: "JobSet", asked: []types.UID{js.UID}}).count(jobs)
	}
	for _, rj := range due {
		made := int32(0)
		for i := range jobs {
			child := &jobs[i]
			if child.Labels[jobsetapi.ReplicatedJobNameKey] != rj.Name {
				continue
			}
			made++
			if ptr.Deref(child.Spec.Suspend, false) && !podset.JobEnded(child) {
				return byJobSet("JobSet has not resumed child Job %s", child.Name)
			}
		}
		if made < rj.Replicas {
			return byJobSet("JobSet has not made %d of %s of replicated job %s", rj.Replicas-made, jobevents.Count(rj.Replicas, "child Job"), rj.Name)
		}
	}
	return nil
}

// lackOfPods looks for pods that the Job controller has not made.
func lackOfPods(due []jobsetapi.ReplicatedJob, jobs []batchv1.Job) *lack {
	names := map[string]bool{}
	for _, rj := range due {
		names[rj.Name] = true
	}
	var found *lack
	for i := range jobs {
		child := &jobs[i]
		if !names[child.Labels[jobsetapi.ReplicatedJobNameKey]] || !lacksPods(child) {
			continue
		}
		if found == nil {
			found = (&lack{kind: "Job", what: fmt.Sprintf("the Job controller has not made %d of %s of child Job %s",
				wantedPods(child)-livePods(child), jobevents.Count(wantedPods(child), "pod"), child.Name)}).count(jobs)
		}
		found.asked = append(found.asked, child.UID)
	}
	if found != nil {
		found.made = !slices.ContainsFunc(jobs, lackedPods)
	}
	return found
}

// lackedPods reports whether a Job has never had all its pods, by its own count of them.
func lackedPods(child batchv1.Job) bool {
	return livePods(&child)+child.Status.Succeeded+child.Status.Failed < ptr.Deref(child.Spec.Parallelism, 1)
}

// lacksPods reports whether a Job has fewer pods than it started out with. One of which
// some have ended, and others are there, has started.
func lacksPods(child *batchv1.Job) bool {
	ended := child.Status.Succeeded + child.Status.Failed
	return !podset.JobEnded(child) && livePods(child) < wantedPods(child) && (ended == 0 || livePods(child) == 0)
}

// wantedPods is how many pods a Job runs at a time, and still has to.
func wantedPods(child *batchv1.Job) int32 {
	wanted := ptr.Deref(child.Spec.Parallelism, 1)
	if child.Spec.Completions != nil {
		wanted = min(wanted, *child.Spec.Completions-child.Status.Succeeded)
	}
	return wanted
}

func livePods(child *batchv1.Job) int32 {
	return child.Status.Active + ptr.Deref(child.Status.Terminating, 0)
}

// count notes which pods the child Jobs have.
func (l *lack) count(jobs []batchv1.Job) *lack {
	for i := range jobs {
		l.live = l.live || livePods(&jobs[i]) > 0
		l.pods = l.pods || jobs[i].Status.Failed > 0 && !podset.JobEnded(&jobs[i])
	}
	l.pods = l.pods || l.live
	return l
}

// statusesOf counts child Jobs as JobSet does. Its own status does not get there while it
// is refused a Job.
func statusesOf(jobs []batchv1.Job) []trainer.JobStatus {
	var statuses []trainer.JobStatus
	for i := range jobs {
		child := &jobs[i]
		status := trainer.JobStatus{Name: child.Labels[jobsetapi.ReplicatedJobNameKey]}
		switch {
		case isJobComplete(child):
			status.Succeeded = ptr.To[int32](1)
		case podset.JobEnded(child):
			status.Failed = ptr.To[int32](1)
		case ptr.Deref(child.Status.Ready, 0) >= wantedPods(child):
			status.Ready = ptr.To[int32](1)
		}
		statuses = addStatus(statuses, status)
	}
	return statuses
}

func addStatus(statuses []trainer.JobStatus, one trainer.JobStatus) []trainer.JobStatus {
	for i := range statuses {
		if all := &statuses[i]; all.Name == one.Name {
			all.Succeeded = ptr.To(ptr.Deref(all.Succeeded, 0) + ptr.Deref(one.Succeeded, 0))
			all.Failed = ptr.To(ptr.Deref(all.Failed, 0) + ptr.Deref(one.Failed, 0))
			all.Ready = ptr.To(ptr.Deref(all.Ready, 0) + ptr.Deref(one.Ready, 0))
			return statuses
		}
	}
	return append(statuses, one)
}

// silentFor is how many times as long a job without a pod keeps its quota where nobody says
// why: who is slow, or away for a moment, refuses nothing.
const silentFor = 5

// patience is what becomes of the quota of a job that lacks something.
type patience int

const (
	// mayCome: it may still come.
	mayCome patience = iota
	// tellSilence: it is late, and nobody says why.
	tellSilence
	// quotaGoes: it does not come.
	quotaGoes
)

// decide about a job that has lacked something for a while, with the refusal that was
// found, if one was. A job that has a pod loses it only for a refusal.
func (l *lack) decide(lacking, timeout time.Duration, refusal string) patience {
	switch {
	case lacking < timeout:
		return mayCome
	case refusal != "", !l.pods && lacking >= silentFor*timeout:
		return quotaGoes
	case l.pods:
		return mayCome
	}
	return tellSilence
}

func isJobComplete(child *batchv1.Job) bool {
	return slices.ContainsFunc(child.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Type == batchv1.JobComplete && c.Status == corev1.ConditionTrue
	})
}
