// SPDX-License-Identifier: Apache-2.0

package jobclient

import (
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// Expectations remember of each TrainJob what we did that the caches may not have heard of yet: which generation our last
// write made, or was refused for not knowing, so that a reconcile whose cache has not seen it waits for the event instead
// of writing the same once more and being refused; when that write was; that a Workload was made; that the job was
// started; and which writes brought nothing. About what a former process wrote they only know that it was before began.
type Expectations struct {
	clock clock.PassiveClock

	mu     sync.Mutex
	began  time.Time
	byName map[types.NamespacedName]*memory
}

// memory is what is remembered of one TrainJob.
type memory struct {
	uid types.UID
	// wanted is a generation that is stored, until it is seen, written the one that our last write made, seen the one that
	// was seen last.
	wanted, written, seen sighting
	// queued is when a Workload was made for it that was not seen yet.
	queued time.Time
	start  start
	// vain are the writes that brought nothing, by what they set.
	vain map[string]failedWrite
	// old are versions of its Workloads, or of those of a former job of its name, of which newer ones exist, and since when.
	old map[version]time.Time
}

// sighting is when a generation was known first.
type sighting struct {
	generation int64
	at         time.Time
}

// start is one that no JobSet was seen to run for. Trainer may have it in hand, and
// resume the JobSet, also when the job was stopped meanwhile.
type start struct {
	unanswered bool
	// generation is that of the job before it was resumed: a view that is not newer has
	// not seen the start, and no stop.
	generation int64
	// stopped is when the job was first seen suspended again.
	stopped time.Time
}

// NewExpectations returns those of a process that begins to lead now.
func NewExpectations(clock clock.PassiveClock) *Expectations {
	return &Expectations{clock: clock, began: clock.Now(), byName: map[types.NamespacedName]*memory{}}
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

// change has do change what is remembered of a TrainJob. Of a former one of its name, the versions of Workloads stay.
func (e *Expectations) change(job types.NamespacedName, uid types.UID, do func(*memory)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	m := e.byName[job]
	switch {
	case m == nil:
		m = &memory{uid: uid}
	case m.uid != uid:
		m = &memory{uid: uid, old: m.old}
	}
	e.byName[job] = m
	do(m)
}

func (e *Expectations) note(job *trainjob.TrainJob, do func(*memory)) {
	e.change(client.ObjectKeyFromObject(job), job.UID, do)
}

// of returns what is remembered of a TrainJob. There is one look at a TrainJob at a time, which has the maps to itself.
func (e *Expectations) of(job *trainjob.TrainJob) memory {
	e.mu.Lock()
	defer e.mu.Unlock()
	if m := e.byName[client.ObjectKeyFromObject(job)]; m != nil && m.uid == job.UID {
		return *m
	}
	return memory{}
}

func (e *Expectations) now(job *trainjob.TrainJob) sighting {
	return sighting{job.Generation, e.clock.Now()}
}

// expect notes a generation that is stored, by us or by whoever was faster.
func (e *Expectations) expect(job *trainjob.TrainJob) {
	e.note(job, func(m *memory) { m.wanted = e.now(job) })
}

// wrote notes the generation that a write of ours returned.
func (e *Expectations) wrote(job *trainjob.TrainJob) {
	e.note(job, func(m *memory) { m.wanted, m.written = e.now(job), e.now(job) })
}

// Wrote reports whether the spec of job is what our last write made of it.
func (e *Expectations) Wrote(job *trainjob.TrainJob) bool {
	last := e.of(job).written
	return !last.at.IsZero() && last.generation == job.Generation
}

// WroteBy returns a time by which our last write of job was done.
func (e *Expectations) WroteBy(job *trainjob.TrainJob) time.Time {
	if last := e.of(job).written; !last.at.IsZero() {
		return last.at
	}
	return e.LedSince()
}

// ChangedBy returns a time by which the spec of job was what it is now: whoever wrote it, we have
// seen it since.
func (e *Expectations) ChangedBy(job *trainjob.TrainJob) time.Time {
	return slices.MaxFunc([]time.Time{e.WroteBy(job), e.of(job).seen.at}, time.Time.Compare)
}

// Queued notes that a Workload was made for a TrainJob.
func (e *Expectations) Queued(job types.NamespacedName, uid types.UID) {
	e.change(job, uid, func(m *memory) { m.queued = e.clock.Now() })
}

// QueuedSince returns how long ago a Workload was made for job; false when none was, or it
// was seen since.
func (e *Expectations) QueuedSince(job *trainjob.TrainJob) (time.Duration, bool) {
	made := e.of(job).queued
	return e.clock.Since(made), !made.IsZero()
}

// SawWorkload notes that the cache has the Workload of a TrainJob.
func (e *Expectations) SawWorkload(job *trainjob.TrainJob) {
	e.note(job, func(m *memory) { m.queued = time.Time{} })
}

// OverdueAfter is how long a write may be without its event. One that never comes was lost with the API server's data,
// which were restored to what they had been before.
const OverdueAfter = 30 * time.Second

// Satisfied reports whether job is as new as our last write, or that is overdue, and then forgets it.
func (e *Expectations) Satisfied(job *trainjob.TrainJob) (satisfied bool) {
	e.note(job, func(m *memory) {
		if job.Generation < m.wanted.generation && e.clock.Since(m.wanted.at) < OverdueAfter {
			return
		}
		satisfied, m.wanted = true, sighting{}
		if m.seen.at.IsZero() || m.seen.generation != job.Generation {
			m.seen = e.now(job)
		}
	})
	return satisfied
}

// ExpectResume notes that job is resumed, or about to be; whether that write succeeds may stay
// unknown. It returns how to forget that, for a write that was refused.
func (e *Expectations) ExpectResume(job *trainjob.TrainJob) (refused func()) {
	key, uid := client.ObjectKeyFromObject(job), job.UID
	var before start
	e.change(key, uid, func(m *memory) { before, m.start = m.start, start{unanswered: true, generation: job.Generation} })
	return func() { e.change(key, uid, func(m *memory) { m.start = before }) }
}

// SawResumed notes that Trainer resumed job.
func (e *Expectations) SawResumed(job *trainjob.TrainJob) {
	e.note(job, func(m *memory) { m.start = start{} })
}

// StoppedBeforeResume returns since when job is suspended again although Trainer has not
// answered its start; false where this process did not start it, or Trainer has answered.
// It counts from when the stop was seen here: from then on Trainer sees it too.
func (e *Expectations) StoppedBeforeResume(job *trainjob.TrainJob) (stopped time.Time, unanswered bool) {
	if begun := e.of(job).start; !begun.unanswered || job.Generation <= begun.generation {
		return time.Time{}, false
	}
	e.note(job, func(m *memory) {
		if m.start.stopped.IsZero() {
			m.start.stopped = e.clock.Now()
		}
		stopped = m.start.stopped
	})
	return stopped, true
}

// Forget drops what was remembered of a job that is gone.
func (e *Expectations) Forget(job types.NamespacedName) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.byName, job)
}

// outdatedFor is how long a version of a Workload that was overtaken is left alone. The
// event of the newer one ends that earlier.
const outdatedFor = 5 * time.Second

// version is one state of a Workload.
type version struct {
	uid             types.UID
	resourceVersion string
}

func versionOf(wl *kueue.Workload) version { return version{wl.UID, wl.ResourceVersion} }

// Outdate notes that a newer version exists than this, of a Workload of a TrainJob: we wrote one, or were refused for
// another's.
func (e *Expectations) Outdate(job types.NamespacedName, wl *kueue.Workload) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.byName[job] == nil {
		e.byName[job] = &memory{}
	}
	m := e.byName[job]
	if m.old == nil {
		m.old = map[version]time.Time{}
	}
	m.old[versionOf(wl)] = e.clock.Now()
}

// Outdated reports whether one of these views of Workloads is known to be overtaken. Whatever would be
// written by it would be refused again.
func (e *Expectations) Outdated(job types.NamespacedName, workloads []*kueue.Workload) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	m := e.byName[job]
	if m == nil {
		return false
	}
	maps.DeleteFunc(m.old, func(v version, at time.Time) bool {
		return e.clock.Since(at) >= outdatedFor || !slices.ContainsFunc(workloads, func(wl *kueue.Workload) bool { return versionOf(wl) == v })
	})
	return len(m.old) > 0
}
