// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

const (
	// trainerPatience is how long a new TrainJob waits for its JobSet before it queues without.
	trainerPatience = 10 * time.Second

	// jobSetPatience is how long it waits for the child Jobs of that. Kueue orders a queue by
	// when jobs came to it, and JobSet takes long for many Jobs: waiting for all of them would
	// have a large job overtaken by the small ones after it.
	jobSetPatience = 2 * time.Second
)

// waiting is since when a TrainJob waits to queue, by our own clock.
type waiting struct {
	uid types.UID
	// began is when we first looked at it, jobSet when we first saw its JobSet.
	began, jobSet time.Time
	// over is set when it queued without its JobSet.
	over bool
}

// patience returns how much longer a TrainJob waits to queue, with its JobSet there or not.
func (e *expectations) patience(job *trainjob.TrainJob, jobSet bool) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	w := e.waitingOf(job)
	if !jobSet {
		return max(0, time.Until(w.began.Add(trainerPatience)))
	}
	if w.jobSet.IsZero() {
		w.jobSet = time.Now()
	}
	return max(0, time.Until(w.jobSet.Add(jobSetPatience)))
}

// giveUp reports whether this is the first time that a TrainJob queues without its JobSet.
func (e *expectations) giveUp(job *trainjob.TrainJob) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	w := e.waitingOf(job)
	first := !w.over
	w.over = true
	return first
}

// waitingOf is for who holds the lock.
func (e *expectations) waitingOf(job *trainjob.TrainJob) *waiting {
	if e.waits == nil {
		e.waits = map[types.NamespacedName]*waiting{}
	}
	key := client.ObjectKeyFromObject(job)
	if w := e.waits[key]; w == nil || w.uid != job.UID {
		e.waits[key] = &waiting{uid: job.UID, began: time.Now()}
	}
	return e.waits[key]
}
