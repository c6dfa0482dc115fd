// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// expectations remember which generation of a TrainJob our last write made, or was
// refused for not knowing, so that a reconcile whose cache has not seen it waits for the
// event instead of writing the same once more and being refused.
type expectations struct {
	mu    sync.Mutex
	wants map[types.NamespacedName]expectation
}

type expectation struct {
	uid        types.UID
	generation int64
}

// wrote notes the generation that a write of ours, or of whoever was faster, made.
func (e *expectations) wrote(job *trainjob.TrainJob) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.wants == nil {
		e.wants = map[types.NamespacedName]expectation{}
	}
	e.wants[client.ObjectKeyFromObject(job)] = expectation{job.UID, job.Generation}
}

// seen reports whether job is as new as our last write, and then forgets that.
func (e *expectations) seen(job *trainjob.TrainJob) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	key := client.ObjectKeyFromObject(job)
	if want := e.wants[key]; want.uid == job.UID && job.Generation < want.generation {
		return false
	}
	delete(e.wants, key)
	return true
}

// forget drops what was remembered of a job that is gone.
func (e *expectations) forget(key types.NamespacedName) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.wants, key)
}
