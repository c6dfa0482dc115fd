// SPDX-License-Identifier: Apache-2.0

package starts

import (
	"fmt"
	"slices"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// Lack is what an admitted job is without, and could not run without.
type Lack struct {
	// What says who has not made or resumed what.
	What string
	// Kind and Asked are the objects that events about it regard; none where Quote is all.
	Kind  string
	Asked []types.UID
	// Quote is a refusal that is known without asking.
	Quote string
	// Live reports whether the job has a pod nevertheless, Pods whether it has one, or had one that
	// failed and that the Job controller recreates in its own time.
	Live, Pods bool
	// Made reports whether all child Jobs that are due are there and had all their pods once.
	Made bool
	// Missing is how many pods the Job controller has not made.
	Missing int32
}

// Of returns what a resumed job is without, or nil. Pods that are there, in whatever
// state, are for the scheduler, the kubelet and Kueue's waitForPodsReady.
func Of(job *trainjob.TrainJob, js *jobsetapi.JobSet, jobs []batchv1.Job) *Lack {
	lack := firstLack(job, js, jobs)
	for i := range jobs {
		if lack == nil {
			return nil
		}
		lack.Live = lack.Live || state.LivePods(&jobs[i]) > 0
		lack.Pods = lack.Pods || lack.Live || jobs[i].Status.Failed > 0 && !podset.JobEnded(&jobs[i])
	}
	return lack
}

// firstLack returns the first of what Trainer, JobSet and the Job controller have not made or resumed.
func firstLack(job *trainjob.TrainJob, js *jobsetapi.JobSet, jobs []batchv1.Job) *Lack {
	byTrainer := func(what string) *Lack {
		return &Lack{What: what, Kind: trainjob.GVK.Kind, Asked: []types.UID{job.UID}}
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
	byJobSet := func(format string, args ...any) *Lack {
		return &Lack{What: fmt.Sprintf(format, args...), Kind: "JobSet", Asked: []types.UID{js.UID}}
	}
	made := map[string][]batchv1.Job{}
	for i := range jobs {
		name := jobs[i].Labels[jobsetapi.ReplicatedJobNameKey]
		made[name] = append(made[name], jobs[i])
	}
	due := podset.Due(js, statusesOf(made))
	for _, rj := range due {
		for _, child := range made[rj.Name] {
			if ptr.Deref(child.Spec.Suspend, false) && !podset.JobEnded(&child) {
				return byJobSet("JobSet has not resumed child Job %s", child.Name)
			}
		}
		if n := int32(len(made[rj.Name])); n < rj.Replicas {
			return byJobSet("JobSet has not made %d of %s of replicated job %s", rj.Replicas-n, jobevents.Count(rj.Replicas, "child Job"), rj.Name)
		}
	}
	return lackOfPods(due, jobs)
}

// lackOfPods looks for pods that the Job controller has not made.
func lackOfPods(due []jobsetapi.ReplicatedJob, jobs []batchv1.Job) *Lack {
	var found *Lack
	for i := range jobs {
		child := &jobs[i]
		isDue := slices.ContainsFunc(due, func(rj jobsetapi.ReplicatedJob) bool { return rj.Name == child.Labels[jobsetapi.ReplicatedJobNameKey] })
		if !isDue || !state.LacksPods(child) || awaitsLeader(child) {
			continue
		}
		missing := state.WantedPods(child) - state.LivePods(child)
		if found == nil {
			found = &Lack{Kind: "Job", What: fmt.Sprintf("the Job controller has not made %d of %s of child Job %s",
				missing, jobevents.Count(state.WantedPods(child), "pod"), child.Name)}
			// A Job that has never had all its pods, by its own count of them.
			found.Made = !slices.ContainsFunc(jobs, func(child batchv1.Job) bool {
				return state.LivePods(&child)+child.Status.Succeeded+child.Status.Failed < ptr.Deref(child.Spec.Parallelism, 1)
			})
		}
		found.Asked, found.Missing = append(found.Asked, child.UID), found.Missing+missing
	}
	return found
}

// awaitsLeader reports whether JobSet refuses a Job the rest of its pods until the first is scheduled, to where
// it sends the others by exclusive placement: that one is for the scheduler.
func awaitsLeader(child *batchv1.Job) bool {
	annotations := child.Spec.Template.Annotations
	_, exclusive := annotations[jobsetapi.ExclusiveKey]
	_, selects := annotations[jobsetapi.NodeSelectorStrategyKey]
	return exclusive && !selects && state.LivePods(child) > 0
}

// statusesOf counts child Jobs as JobSet does. Its own status does not get there while it
// is refused a Job.
func statusesOf(made map[string][]batchv1.Job) []trainer.JobStatus {
	var statuses []trainer.JobStatus
	for name, jobs := range made {
		status := trainer.JobStatus{Name: name, Succeeded: new(int32), Failed: new(int32), Ready: new(int32)}
		for i := range jobs {
			switch child := &jobs[i]; {
			case podset.JobHas(child, batchv1.JobComplete):
				*status.Succeeded++
			case podset.JobEnded(child):
				*status.Failed++
			case ptr.Deref(child.Status.Ready, 0) >= state.WantedPods(child):
				*status.Ready++
			}
		}
		statuses = append(statuses, status)
	}
	return statuses
}
