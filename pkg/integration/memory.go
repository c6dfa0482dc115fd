// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/pkg/awaited"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// memory is what the reconciler remembers of TrainJobs from one look to the next: since when
// they wait to queue, that they have ended, that none runs any more that had their name before,
// and their runs.
type memory struct {
	// waitForJobSet is how long a TrainJob waits for its JobSet, before it queues without.
	waitForJobSet time.Duration

	mu    sync.Mutex
	waits map[types.NamespacedName]*waiting
	ended map[types.NamespacedName]end
	// alone are copies that were seen without a pod of another one of their name.
	alone map[types.NamespacedName]types.UID

	runs runs
}

// waiting is since when a TrainJob waits to queue, by our own clock.
type waiting struct {
	uid types.UID
	// began is when we first looked at it, jobSet when we first saw its JobSet.
	began, jobSet time.Time
	// over is set when it queued without its JobSet.
	over bool
}

// patience returns how much longer a TrainJob waits to queue, with its JobSet there or not.
func (m *memory) patience(job *trainjob.TrainJob, jobSet bool) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.waitingOf(job)
	if !jobSet {
		return max(0, time.Until(w.began.Add(m.waitForJobSet)))
	}
	if w.jobSet.IsZero() {
		w.jobSet = time.Now()
	}
	return max(0, time.Until(w.jobSet.Add(awaited.Jobs)))
}

// awaitedUntil returns until when a TrainJob waited for its JobSet; zero where none waits.
func (m *memory) awaitedUntil(job *trainjob.TrainJob) time.Time {
	if m.waitForJobSet == 0 {
		return time.Time{}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.waitingOf(job).began.Add(m.waitForJobSet)
}

// queuesUnprepared reports whether this is the first time that a TrainJob queues without a JobSet
// that it waited for.
func (m *memory) queuesUnprepared(job *trainjob.TrainJob) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.waitingOf(job)
	first := !w.over && m.waitForJobSet > 0
	w.over = true
	return first
}

// waitingOf is for who holds the lock.
func (m *memory) waitingOf(job *trainjob.TrainJob) *waiting {
	if m.waits == nil {
		m.waits = map[types.NamespacedName]*waiting{}
	}
	key := client.ObjectKeyFromObject(job)
	if w := m.waits[key]; w == nil || w.uid != job.UID {
		m.waits[key] = &waiting{uid: job.UID, began: time.Now()}
	}
	return m.waits[key]
}

// queued notes that a TrainJob has a Workload.
func (m *memory) queued(job types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.waits, job)
}

// end is the condition that a job ended with.
type end struct {
	uid       types.UID
	condition metav1.Condition
	// held is when we first saw that it is suspended, by our own clock.
	held time.Time
}

// sawEnd notes that job has ended.
func (m *memory) sawEnd(job *trainjob.TrainJob, condition metav1.Condition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	seen := m.endOf(job)
	seen.condition = condition
	m.ended[client.ObjectKeyFromObject(job)] = seen
}

// end returns the condition that job ended with, as far as this process saw it; nil: none.
func (m *memory) end(job *trainjob.TrainJob) *metav1.Condition {
	m.mu.Lock()
	defer m.mu.Unlock()
	if seen := m.endOf(job); seen.condition.Type != "" {
		return &seen.condition
	}
	return nil
}

// heldSince returns since when this process knows that a job which has ended, or is deleted, is suspended.
func (m *memory) heldSince(job *trainjob.TrainJob) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	seen := m.endOf(job)
	if seen.held.IsZero() {
		seen.held = time.Now()
		m.ended[client.ObjectKeyFromObject(job)] = seen
	}
	return seen.held
}

// endOf is for who holds the lock.
func (m *memory) endOf(job *trainjob.TrainJob) end {
	if m.ended == nil {
		m.ended = map[types.NamespacedName]end{}
	}
	if seen := m.ended[client.ObjectKeyFromObject(job)]; seen.uid == job.UID {
		return seen
	}
	return end{uid: job.UID}
}

// sawAlone notes that no pod is left of those that had the name of a job before.
func (m *memory) sawAlone(job *trainjob.TrainJob) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.alone == nil {
		m.alone = map[types.NamespacedName]types.UID{}
	}
	m.alone[client.ObjectKeyFromObject(job)] = job.UID
}

// isAlone reports whether sawAlone was told of a job.
func (m *memory) isAlone(job *trainjob.TrainJob) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.alone[client.ObjectKeyFromObject(job)] == job.UID
}

// forget drops what was remembered of a job that is gone.
func (m *memory) forget(key types.NamespacedName) {
	m.runs.forget(key)
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.waits, key)
	delete(m.ended, key)
	delete(m.alone, key)
}
