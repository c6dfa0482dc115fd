// SPDX-License-Identifier: Apache-2.0

package jobevents

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// passing are the reasons of Warnings about what comes right without anybody's doing, what does not
// keep a whole job, or what an admin means: two integrations at once during a migration, a namespace that
// Kueue leaves alone.
var passing = map[string]bool{ReasonCheckRetries: true, ReasonUngateRefused: true, ReasonNotAlone: true, ReasonNotManaged: true}

// stuckReasons are what TrainJobs wait for that does not come by itself: for each the reason of the
// first Warning in the last look at it, whether that was news to anybody or not.
type stuckReasons struct {
	mu sync.Mutex
	// noted are of looks that are under way, last of those that are over.
	noted, last map[types.UID]string
}

// Note has a TrainJob count as being in trouble for a reason, as a Warning does.
func (t *stuckReasons) Note(uid types.UID, reason string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if passing[reason] || t.noted[uid] != "" {
		return
	}
	if t.noted == nil {
		t.noted = map[types.UID]string{}
	}
	t.noted[uid] = reason
}

// EndLook ends a look at a TrainJob: its reasons are those that were noted meanwhile.
func (t *stuckReasons) EndLook(uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	reason := t.noted[uid]
	delete(t.noted, uid)
	if reason == "" {
		delete(t.last, uid)
		return
	}
	if t.last == nil {
		t.last = map[types.UID]string{}
	}
	t.last[uid] = reason
}

// StuckReason returns the reason of what a TrainJob waits for that does not come by itself; empty: there
// is none.
func (t *stuckReasons) StuckReason(uid types.UID) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last[uid]
}

func (t *stuckReasons) forget(uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.noted, uid)
	delete(t.last, uid)
}
