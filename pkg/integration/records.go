// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kueue-trainer/kueue-trainer/pkg/awaited"
	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
)

// record is what is remembered of a TrainJob from one look to the next. There is one look at a TrainJob at a time,
// which has the record to itself.
type record struct {
	uid     types.UID
	waiting waiting
	ended   jobEnd
	// alone is set for a copy that was seen without a pod of another one of its name.
	alone bool
	run   run
	start startRecord
}

// records are those of all TrainJobs.
type records struct {
	mu     sync.Mutex
	byName map[types.NamespacedName]*record
}

// of returns the record of a TrainJob. What is gone has none.
func (r *records) of(key types.NamespacedName, uid types.UID) *record {
	if uid == "" {
		return &record{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if known := r.byName[key]; known != nil && known.uid == uid {
		return known
	}
	if r.byName == nil {
		r.byName = map[types.NamespacedName]*record{}
	}
	r.byName[key] = &record{uid: uid}
	return r.byName[key]
}

// trim forgets a record that says nothing.
func (r *records) trim(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known := r.byName[key]; known != nil && *known == (record{uid: known.uid}) {
		delete(r.byName, key)
	}
}

// forget drops what was remembered of a TrainJob that is gone.
func (r *records) forget(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.byName, key)
}

// waiting is since when a TrainJob waits to queue, by our own clock.
type waiting struct {
	// began is when we first looked at it, jobSet when we first saw its JobSet.
	began, jobSet time.Time
	// over is set when it queued without its JobSet.
	over bool
}

// since returns when we first looked at a TrainJob that waits.
func (w *waiting) since() time.Time {
	if w.began.IsZero() {
		w.began = time.Now()
	}
	return w.began
}

// patience returns how much longer a TrainJob waits to queue, with its JobSet there or not. Without, it waits for as long
// as is given.
func (w *waiting) patience(forJobSet time.Duration, jobSet bool) time.Duration {
	began := w.since()
	if !jobSet {
		return max(0, time.Until(began.Add(forJobSet)))
	}
	if w.jobSet.IsZero() {
		w.jobSet = time.Now()
	}
	return max(0, time.Until(w.jobSet.Add(awaited.Jobs)))
}

// jobEnd is how a TrainJob ended, as far as this process saw it.
type jobEnd struct {
	condition metav1.Condition
	// held is when we first saw that it is suspended, by our own clock.
	held time.Time
}

// heldSince returns since when this process knows that a job which has ended, or is deleted, is suspended.
func (e *jobEnd) heldSince() time.Time {
	if e.held.IsZero() {
		e.held = time.Now()
	}
	return e.held
}

// run is the last one of a TrainJob, from a resumption to the stop, for what is measured of it. Of a run that another
// process began it is unknown whether its pods were ready before; it is taken for measured then.
type run struct {
	queue metrics.Queue
	// admitted is by Kueue's clock, began is zero where no run is known.
	admitted, began time.Time
	// ready is set once its pods were ready, over once it was stopped.
	ready, over bool
}

// underWay reports whether a run is known that was not stopped yet.
func (r run) underWay() bool { return !r.began.IsZero() && !r.over }
