// SPDX-License-Identifier: Apache-2.0

// Package starts says what an admitted TrainJob lacks to run, and remembers starts that failed, and for how long the job stays out
// of its queue for them.
package starts

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// longestHold bounds the time for which a job that could not start stays out of its queue.
const longestHold = time.Hour

// Record is what is remembered of the starts of a TrainJob, also of those that failed, for which it stays out of its
// queue.
type Record struct {
	// Admission is what the next five are about: since when the job lacks something, when to look
	// for a refusal again, whether it once lacked nothing, the fewest pods that were missing, and whether that
	// number has fallen.
	Admission Admission
	Lacking   time.Time
	Look      time.Time
	Complete  bool
	Missing   int32
	Gains     bool

	// Until is when the job may queue again that could not start, since the Workload of Former was given back.
	Until  time.Time
	Former types.UID
	// tries counts the starts that failed in a row of the job as it is, by its sum, and hold is how long it stays out of its
	// queue for the last.
	tries int
	hold  time.Duration
	sum   [sha256.Size]byte

	// Unmade is what is known of a job that has no JobSet yet.
	Unmade Unmade
}

// Admission is one of the times that a Workload was admitted: Kueue admits the same one again.
type Admission struct {
	workload types.UID
	// since is in seconds, as conditions have it.
	since int64
}

// AdmissionOf returns the one that holds.
func AdmissionOf(wl *kueue.Workload) Admission {
	return Admission{workload: wl.UID, since: state.AdmittedAt(wl).Unix()}
}

// Lacks notes that an admitted job lacks something. It returns for how long by our own clock, the
// time until a refusal is to be looked for, first after timeout, and whether the job once lacked nothing since it was
// admitted. Each time that fewer pods are missing than ever, the time starts over: the Job controller creates thousands in
// minutes, and what it was refused meanwhile it has created since.
func (r *Record) Lacks(by Admission, timeout time.Duration, missing int32) (lacking, wait time.Duration, complete bool) {
	now := time.Now()
	if r.Admission != by {
		r.Admission, r.Lacking, r.Complete, r.Missing, r.Gains = by, time.Time{}, false, 0, false
	}
	fewer := missing > 0 && missing < r.Missing
	if r.Lacking.IsZero() || fewer {
		r.Lacking, r.Look, r.Gains = now, now.Add(timeout), r.Gains || fewer
	}
	if fewer || r.Missing == 0 || missing == 0 { // JobSet or Trainer is at work: what it recreates has no pods yet.
		r.Missing = missing
	}
	return now.Sub(r.Lacking), max(0, r.Look.Sub(now)), r.Complete
}

// LookAgain notes that a refusal was looked for, and returns the time to the next look.
func (r *Record) LookAgain(timeout time.Duration) time.Duration {
	r.Look = time.Now().Add(timeout)
	return timeout
}

// LacksNothing notes that a job has started: what it did before is forgotten.
func (r *Record) LacksNothing(by Admission) { *r = Record{Admission: by, Complete: true} }

// HoldBack keeps a job that gives a Workload back out of its queue, twice as long as the last
// time, and returns for how long.
func (r *Record) HoldBack(wl types.UID, job *trainjob.TrainJob, field patch.Field, timeout time.Duration) time.Duration {
	sum := sumOf(job, field)
	if r.sum != sum {
		r.tries = 0
	}
	hold := min(longestHold, timeout/2<<min(r.tries, 16))
	*r = Record{tries: r.tries + 1, hold: hold, Until: time.Now().Add(hold), Former: wl, sum: sum}
	return hold
}

// QuotaGoes notes that the quota of a Workload goes now, which may be long after the job was held
// back for it: from here on it stays out of its queue, so that others have their turn.
func (r *Record) QuotaGoes(wl types.UID) {
	if r.Former == wl && wl != "" {
		r.Until = time.Now().Add(r.hold)
	}
}

// HeldBack returns how much longer a job stays out of its queue; not at all when its user
// has changed what sumOf sums up.
func (r *Record) HeldBack(job *trainjob.TrainJob, field patch.Field) time.Duration {
	if !time.Now().Before(r.Until) || !r.FailedBefore(job, field) {
		return 0
	}
	return time.Until(r.Until)
}

// FailedBefore reports whether the job, as it is, could not start when it was last admitted.
func (r *Record) FailedBefore(job *trainjob.TrainJob, field patch.Field) bool {
	return r.tries > 0 && r.sum == sumOf(job, field)
}

// tryAgain is the annotation by which users have a job queue at once that could not start, see docs/use.md.
const tryAgain = "try-again"

// sumOf sums up what its user says of a job: the spec without our part and without suspend, Kueue's labels and
// annotations, and the one to try again. All others, which some controller may write again and again, change no start.
func sumOf(job *trainjob.TrainJob, field patch.Field) [sha256.Size]byte {
	said := func(all map[string]string) map[string]string {
		kept := map[string]string{}
		for key, value := range all {
			domain, _, _ := strings.Cut(key, "/")
			if key == tryAgain || strings.HasSuffix("."+domain, "."+kueue.SchemeGroupVersion.Group) {
				kept[key] = value
			}
		}
		return kept
	}
	spec := job.DeepCopy().Spec
	field.Drop(&spec)
	spec.Suspend = nil
	data, err := json.Marshal([]any{spec, said(job.Labels), said(job.Annotations)})
	if err != nil {
		// It was decoded from JSON. A change is not seen then, and time passes anyway.
		return [sha256.Size]byte{}
	}
	return sha256.Sum256(data)
}

// Unmade is what is known of a job whose JobSet Trainer does not make.
type Unmade struct {
	// generation is the one that the rest is about.
	generation int64
	// refused is set while a refusal is known; looks counts how often it was found, until is
	// when to look again.
	refused bool
	looks   int
	until   time.Time
}

// The first and the longest time between two looks at a job whose JobSet was refused. Trainer tries
// again at its own pace, whatever an admin has new jobs wait for. changedUnmade is for a job that was changed.
const (
	FirstUnmade   = 10 * time.Second
	LongestUnmade = 5 * time.Minute
	changedUnmade = 2 * time.Second
)

// Wait returns the time to the next look for a refusal, and whether the last look found
// one. Trainer tries again as soon as a job is changed, so that is worth a look soon after.
func (u *Unmade) Wait(generation int64) (wait time.Duration, refused bool) {
	if u.refused && u.generation != generation {
		u.looks, u.until = 0, time.Now().Add(changedUnmade)
	}
	u.generation = generation
	return max(0, time.Until(u.until)), u.refused
}

// Found notes what a look found, and returns the time to the next.
func (u *Unmade) Found(refused bool) time.Duration {
	if u.refused = refused; !refused {
		u.looks = 0
		return 0
	}
	wait := min(LongestUnmade, FirstUnmade<<min(u.looks, 16))
	u.looks, u.until = u.looks+1, time.Now().Add(wait)
	return wait
}

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
