// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// expectations remember which generation of a TrainJob our last write made, so that
// a reconcile whose cache has not seen it waits for the event instead of writing the
// same once more and being refused.
type expectations struct {
	mu          sync.Mutex
	generations map[types.UID]int64
}

// wrote notes the generation that a write of ours returned.
func (e *expectations) wrote(job *trainjob.TrainJob) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.generations == nil {
		e.generations = map[types.UID]int64{}
	}
	e.generations[job.UID] = job.Generation
}

// seen reports whether job is as new as our last write, and then forgets that.
func (e *expectations) seen(job *trainjob.TrainJob) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if job.Generation < e.generations[job.UID] {
		return false
	}
	delete(e.generations, job.UID)
	return true
}
