// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// unmade is what is known of a job whose JobSet Trainer does not make.
type unmade struct {
	// generation is the one that the rest is about.
	generation int64
	// refused is set while a refusal is known; looks counts how often it was found, until is
	// when to look again.
	refused bool
	looks   int
	until   time.Time
}

// The first and the longest time between two looks at a job whose JobSet was refused. Trainer tries
// again at its own pace, whatever an admin has new jobs wait for.
const (
	firstUnmade   = 10 * time.Second
	longestUnmade = 5 * time.Minute
)

// awaitJobSet is for a job that has waited long enough for its JobSet: it queues without. Where
// Trainer was refused the JobSet it does not, for then it could only hold quota; Trainer tries
// again by itself, and the event of the JobSet brings the job here.
func awaitJobSet(ctx context.Context, j *job) result {
	if !j.manages {
		return result{}
	}
	wait, refused := j.record.start.unmade.wait(j.Generation)
	if wait > 0 {
		if refused {
			j.env.Recorder.Note(j.UID, jobevents.ReasonCannotStart)
		}
		return result{done: refused, unqueued: refused, again: wait}
	}
	refusal, again, err := j.env.refusals.Last(ctx, j.Namespace, trainjob.GVK.Kind, []types.UID{j.UID}, time.Time{}, awaitedUntil(j))
	if err != nil {
		return result{err: err}
	}
	if again > 0 {
		if refused {
			j.env.Recorder.Note(j.UID, jobevents.ReasonCannotStart)
		}
		return unqueued(again)
	}
	wait = j.record.start.unmade.found(refusal != "")
	if refusal == "" {
		tellUnprepared(j)
		return result{}
	}
	j.env.Recorder.Warn(&j.TrainJob, jobevents.ReasonCannotStart, jobevents.ActionDescribe, fmt.Errorf(
		"does not queue, because Trainer could not make JobSet %s: %s", j.Name, refusal))
	return unqueued(wait)
}

// awaitUsable is for a job whose first child Jobs are there, or should be. It does not queue where another Job has
// the name of one that JobSet has yet to make: JobSet gets no further than that, neither to a start nor to a stop. Nor
// where somebody's finalizer would keep what is made of it, and its pods, when it is deleted: the policies see to
// that from here on.
func awaitUsable(ctx context.Context, j *job, js *jobsetapi.JobSet, jobs []batchv1.Job) result {
	if !j.manages {
		return result{}
	}
	why := kept("JobSet", js)
	for i := range jobs {
		why = cmp.Or(why, kept("Job", &jobs[i]))
	}
	var err error
	if why == "" {
		why, err = nameTaken(ctx, j, js, jobs)
	}
	if err != nil || why == "" {
		return result{err: err}
	}
	j.env.Recorder.Warn(&j.TrainJob, jobevents.ReasonCannotStart, jobevents.ActionDescribe, fmt.Errorf("does not queue, because %s", why))
	return unqueued(firstUnmade)
}

// kept says by which finalizer an object stays when it is deleted; empty: by none.
func kept(kind string, obj client.Object) string {
	if len(obj.GetFinalizers()) == 0 {
		return ""
	}
	return fmt.Sprintf("%s %s has finalizer %s, which would keep pods that nobody stops: take the finalizer off", kind, obj.GetName(), obj.GetFinalizers()[0])
}

// nameTaken says which Job has the name of one that JobSet has yet to make; empty: none.
func nameTaken(ctx context.Context, j *job, js *jobsetapi.JobSet, made []batchv1.Job) (string, error) {
	for _, name := range state.JobNames(js) {
		if slices.ContainsFunc(made, func(child batchv1.Job) bool { return child.Name == name }) {
			continue
		}
		key := client.ObjectKey{Namespace: js.Namespace, Name: name}
		var child batchv1.Job
		if err := j.env.live.Get(ctx, key, &child); err != nil {
			if client.IgnoreNotFound(err) != nil {
				return "", fmt.Errorf("reading Job %s: %w", key, err)
			}
			continue
		}
		if !metav1.IsControlledBy(&child, js) {
			return fmt.Sprintf("JobSet %s needs a Job %s, and there is another one of that name: delete that, or create the TrainJob under another name", js.Name, name), nil
		}
	}
	return "", nil
}

// awaitedUntil returns until when the job waited for its JobSet; zero where none waits.
func awaitedUntil(j *job) time.Time {
	if j.env.waitForJobSet == 0 {
		return time.Time{}
	}
	return j.record.waiting.since().Add(j.env.waitForJobSet)
}

// wait returns the time to the next look for a refusal, and whether the last look found
// one. Trainer tries again as soon as a job is changed, so that is worth a look soon after.
func (u *unmade) wait(generation int64) (wait time.Duration, refused bool) {
	if u.refused && u.generation != generation {
		u.looks, u.until = 0, time.Now().Add(retrySlowly)
	}
	u.generation = generation
	return max(0, time.Until(u.until)), u.refused
}

// found notes what a look found, and returns the time to the next.
func (u *unmade) found(refused bool) time.Duration {
	if u.refused = refused; !refused {
		u.looks = 0
		return 0
	}
	wait := min(longestUnmade, firstUnmade<<min(u.looks, 16))
	u.looks, u.until = u.looks+1, time.Now().Add(wait)
	return wait
}
