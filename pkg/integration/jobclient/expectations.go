// SPDX-License-Identifier: Apache-2.0

package jobclient

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// Expectations remember which generation of a TrainJob our last write made, or was
// refused for not knowing, so that a reconcile whose cache has not seen it waits for the
// event instead of writing the same once more and being refused.
//
// They also remember when that write was; about those of a former process they only know
// that they were before began.
type Expectations struct {
	clock clock.PassiveClock

	mu     sync.Mutex
	began  time.Time
	wants  map[types.NamespacedName]sighting
	writes map[types.NamespacedName]write
	queued map[types.NamespacedName]write
	seen   map[types.NamespacedName]sighting

	unanswered map[types.NamespacedName]unanswered
	old        map[types.NamespacedName]outdatedVersions
}

type write struct {
	uid types.UID
	at  time.Time
	// generation of a TrainJob that it made.
	generation int64
}

// sighting is when a generation was seen first.
type sighting struct {
	expectation
	at time.Time
}

type expectation struct {
	uid        types.UID
	generation int64
}

// NewExpectations returns those of a process that begins to lead now.
func NewExpectations(clock clock.PassiveClock) *Expectations {
	return &Expectations{
		clock: clock, began: clock.Now(),
		wants:      map[types.NamespacedName]sighting{},
		writes:     map[types.NamespacedName]write{},
		queued:     map[types.NamespacedName]write{},
		seen:       map[types.NamespacedName]sighting{},
		unanswered: map[types.NamespacedName]unanswered{},
		old:        map[types.NamespacedName]outdatedVersions{},
	}
}

// Lead notes that this process leads from now on: what was written before, another one wrote.
func (e *Expectations) Lead() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.began = e.clock.Now()
}

// LedSince returns since when this process leads.
func (e *Expectations) LedSince() time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.began
}

// wrote notes the generation that a write of ours returned.
func (e *Expectations) wrote(job *trainjob.TrainJob) {
	e.expect(job)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.writes[client.ObjectKeyFromObject(job)] = write{job.UID, e.clock.Now(), job.Generation}
}

// Wrote reports whether the spec of job is what our last write made of it.
func (e *Expectations) Wrote(job *trainjob.TrainJob) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	last := e.writes[client.ObjectKeyFromObject(job)]
	return last.uid == job.UID && last.generation == job.Generation
}

// WroteBy returns a time by which our last write of job was done.
func (e *Expectations) WroteBy(job *trainjob.TrainJob) time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	if last, ok := e.writes[client.ObjectKeyFromObject(job)]; ok && last.uid == job.UID {
		return last.at
	}
	return e.began
}

// ChangedBy returns a time by which the spec of job was what it is now: whoever wrote it, we have
// seen it since.
func (e *Expectations) ChangedBy(job *trainjob.TrainJob) time.Time {
	changed := e.WroteBy(job)
	e.mu.Lock()
	defer e.mu.Unlock()
	if last := e.seen[client.ObjectKeyFromObject(job)]; last.uid == job.UID && last.at.After(changed) {
		return last.at
	}
	return changed
}

// Queued notes that a Workload was made for a TrainJob.
func (e *Expectations) Queued(job types.NamespacedName, uid types.UID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.queued[job] = write{uid: uid, at: e.clock.Now()}
}

// QueuedSince returns how long ago a Workload was made for job; false when none was, or it
// was seen since.
func (e *Expectations) QueuedSince(job *trainjob.TrainJob) (time.Duration, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	made, ok := e.queued[client.ObjectKeyFromObject(job)]
	return e.clock.Since(made.at), ok && made.uid == job.UID
}

// SawWorkload notes that the cache has the Workload of a TrainJob.
func (e *Expectations) SawWorkload(job types.NamespacedName) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.queued, job)
}

// expect notes a generation that is stored, by us or by whoever was faster.
func (e *Expectations) expect(job *trainjob.TrainJob) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.wants[client.ObjectKeyFromObject(job)] = sighting{expectation{job.UID, job.Generation}, e.clock.Now()}
}

// OverdueAfter is how long a write may be without its event. One that never comes was lost with the API server's data,
// which were restored to what they had been before.
const OverdueAfter = 30 * time.Second

// Satisfied reports whether job is as new as our last write, or that is overdue, and then forgets it.
func (e *Expectations) Satisfied(job *trainjob.TrainJob) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	key := client.ObjectKeyFromObject(job)
	if want := e.wants[key]; want.uid == job.UID && job.Generation < want.generation && e.clock.Since(want.at) < OverdueAfter {
		return false
	}
	delete(e.wants, key)
	if now := (expectation{job.UID, job.Generation}); e.seen[key].expectation != now {
		e.seen[key] = sighting{now, e.clock.Now()}
	}
	return true
}

// Forget drops what was remembered of a job that is gone.
func (e *Expectations) Forget(key types.NamespacedName) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.wants, key)
	delete(e.writes, key)
	delete(e.seen, key)
	delete(e.queued, key)
	delete(e.unanswered, key)
	delete(e.old, key)
}
