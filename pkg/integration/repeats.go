// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

const (
	// repeatsFree is how often a write may be undone or refused before it has to wait: what
	// recovers by itself has recovered by then.
	repeatsFree = 3
	// repeatSoon is how long a write waits at least that was undone.
	repeatSoon = 300 * time.Millisecond
	// repeatFirst is how long it waits then; every time twice as long, up to repeatMost.
	repeatFirst = time.Second
	repeatMost  = time.Minute
)

// repeats remember which writes of TrainJobs brought nothing, because another webhook
// undoes, changes or refuses them, so that they are not repeated as fast as they fail. A
// job that starts, stops and starts again writes the same too, but each time it is kept.
type repeats struct {
	clock clock.PassiveClock

	mu sync.Mutex
	// vain are the writes of a TrainJob by what they set.
	vain map[types.UID]map[string]vainWrite
}

// NewRepeats returns an empty memory.
func NewRepeats(clock clock.PassiveClock) *repeats {
	return &repeats{clock: clock, vain: map[types.UID]map[string]vainWrite{}}
}

// vainWrite is a write that brought nothing.
type vainWrite struct {
	times int
	last  time.Time
	// why says what became of it, for people.
	why string
}

// wait returns how much longer the write has to wait.
func (w vainWrite) wait(now time.Time) time.Duration {
	if w.times < repeatsFree {
		return 0
	}
	backoff := min(repeatFirst<<min(w.times-repeatsFree, 10), repeatMost)
	return max(0, w.last.Add(backoff).Sub(now))
}

// errVain is why a write was not made now.
type errVain struct {
	wait time.Duration
	why  string
}

// Error implements error.
func (e *errVain) Error() string { return e.why }

// may returns errVain while the write of a TrainJob has to wait.
func (r *repeats) may(uid types.UID, write string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.vain[uid][write]
	if wait := last.wait(r.clock.Now()); wait > 0 {
		return &errVain{wait: wait, why: last.why}
	}
	return nil
}

// inVain takes note that the write brought nothing, and why.
func (r *repeats) inVain(uid types.UID, write, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.vain[uid] == nil {
		r.vain[uid] = map[string]vainWrite{}
	}
	r.vain[uid][write] = vainWrite{times: r.vain[uid][write].times + 1, last: r.clock.Now(), why: why}
}

// kept takes note that the write is stored as it was meant.
func (r *repeats) kept(uid types.UID, write string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.vain[uid], write)
	if len(r.vain[uid]) == 0 {
		delete(r.vain, uid)
	}
}

// forget drops what is remembered of a TrainJob that is gone or over.
func (r *repeats) forget(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.vain, uid)
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

// vainWait returns the time until a write may be made that err is about; 0: it is about none.
func vainWait(err error) time.Duration {
	var vain *errVain
	if errors.As(err, &vain) {
		return vain.wait
	}
	return 0
}
