// SPDX-License-Identifier: Apache-2.0

package jobclient

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// unanswered is a start that no JobSet was seen to run for. Trainer may have it in hand, and
// resume the JobSet, also when the job was stopped meanwhile.
type unanswered struct {
	uid types.UID
	// generation is that of the job before it was resumed: a view that is not newer has
	// not seen the start, and no stop.
	generation int64
	// stopped is when the job was first seen suspended again.
	stopped time.Time
}

// ExpectResume notes that job is resumed, or about to be; whether that write succeeds may stay
// unknown. It returns how to forget that, for a write that was refused.
func (e *Expectations) ExpectResume(job *trainjob.TrainJob) (refused func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	key := client.ObjectKeyFromObject(job)
	before, was := e.unanswered[key]
	e.unanswered[key] = unanswered{uid: job.UID, generation: job.Generation}
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if was {
			e.unanswered[key] = before
		} else {
			delete(e.unanswered, key)
		}
	}
}

// SawResumed notes that Trainer resumed job.
func (e *Expectations) SawResumed(job *trainjob.TrainJob) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.unanswered, client.ObjectKeyFromObject(job))
}

// StoppedBeforeResume returns since when job is suspended again although Trainer has not
// answered its start; false where this process did not start it, or Trainer has answered.
// It counts from when the stop was seen here: from then on Trainer sees it too.
func (e *Expectations) StoppedBeforeResume(job *trainjob.TrainJob) (time.Time, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	key := client.ObjectKeyFromObject(job)
	start, ok := e.unanswered[key]
	if !ok || start.uid != job.UID || job.Generation <= start.generation {
		return time.Time{}, false
	}
	if start.stopped.IsZero() {
		start.stopped = e.clock.Now()
		e.unanswered[key] = start
	}
	return start.stopped, true
}
