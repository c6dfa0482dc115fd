// SPDX-License-Identifier: Apache-2.0

package jobclient

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

const (
	// freeFailures is how often a write may be undone or refused before it has to wait: what
	// recovers by itself has recovered by then.
	freeFailures = 3
	// minWait is how long a write waits at least that was undone.
	minWait = 300 * time.Millisecond
	// firstWait is how long it waits then; every time twice as long, up to maxWait.
	firstWait = time.Second
	maxWait   = time.Minute
)

// Backoff remembers which writes of TrainJobs brought nothing, because another webhook
// undoes, changes or refuses them, so that they are not repeated as fast as they fail. A
// job that starts, stops and starts again writes the same too, but each time it is kept.
type Backoff struct {
	clock clock.PassiveClock

	mu sync.Mutex
	// vain are the writes of a TrainJob by what they set.
	vain map[types.UID]map[string]failedWrite
}

// NewBackoff returns an empty memory.
func NewBackoff(clock clock.PassiveClock) *Backoff {
	return &Backoff{clock: clock, vain: map[types.UID]map[string]failedWrite{}}
}

// failedWrite is a write that brought nothing.
type failedWrite struct {
	times int
	last  time.Time
	// why says what became of it, for people.
	why string
}

// wait returns how much longer the write has to wait.
func (w failedWrite) wait(now time.Time) time.Duration {
	if w.times < freeFailures {
		return 0
	}
	backoff := min(firstWait<<min(w.times-freeFailures, 10), maxWait)
	return max(0, w.last.Add(backoff).Sub(now))
}

// backoffError is why a write was not made now.
type backoffError struct {
	wait time.Duration
	why  string
}

// Error implements error.
func (e *backoffError) Error() string { return e.why }

// may returns a backoffError while the write of a TrainJob has to wait.
func (b *Backoff) may(uid types.UID, write string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	last := b.vain[uid][write]
	if wait := last.wait(b.clock.Now()); wait > 0 {
		return &backoffError{wait: wait, why: last.why}
	}
	return nil
}

// Reverted takes note that the write brought nothing, and why.
func (b *Backoff) Reverted(uid types.UID, write, why string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.vain[uid] == nil {
		b.vain[uid] = map[string]failedWrite{}
	}
	b.vain[uid][write] = failedWrite{times: b.vain[uid][write].times + 1, last: b.clock.Now(), why: why}
}

// kept takes note that the write is stored as it was meant.
func (b *Backoff) kept(uid types.UID, write string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.vain[uid], write)
	if len(b.vain[uid]) == 0 {
		delete(b.vain, uid)
	}
}

// Forget drops what is remembered of a TrainJob that is gone or over.
func (b *Backoff) Forget(uid types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.vain, uid)
}

// Len returns of how many TrainJobs such writes are remembered.
func (b *Backoff) Len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.vain)
}

// changed names the field in which a TrainJob as it is stored differs from what a step set;
// empty: in none. Of the patches only our part counts.
func (c changes) changed(stored *trainjob.Spec) (string, error) {
	data, err := json.Marshal(c)
	if err != nil {
		return "", err
	}
	var want trainjob.Spec
	if err := json.Unmarshal(data, &want); err != nil {
		return "", err
	}
	for field, at := range map[string]patch.Field{
		"podTemplateOverrides": patch.Of(trainjob.Trainer21), "runtimePatches": patch.Of(trainjob.Trainer23),
	} {
		if c.sets(field) && at.Has(&want) && !at.Same(&want, stored) {
			return "spec." + field, nil
		}
	}
	if want.Suspend != nil && (stored.Suspend == nil || *stored.Suspend != *want.Suspend) {
		return "spec.suspend", nil
	}
	return "", nil
}

// undone says that somebody changes what we write.
func undone(field string) string {
	return fmt.Sprintf("%s is not stored as kueue-trainer writes it: another mutating webhook or admission policy for TrainJobs removes or changes it; "+
		"let that leave the TrainJob's %s alone. Until then the write is repeated less and less often", field, field)
}

// refusedAgain says that somebody refuses it.
func refusedAgain(err error) string {
	return fmt.Sprintf("a write of kueue-trainer is refused again and again, and repeated less and less often: %v", err)
}

// BackoffOf returns the time until a write may be made that err is about; 0: it is about none.
func BackoffOf(err error) time.Duration {
	if waits, ok := errors.AsType[*backoffError](err); ok {
		return waits.wait
	}
	return 0
}
