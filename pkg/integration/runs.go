// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// runs remember the last run of each TrainJob, for what is measured of it. Of a run that another
// process began it is unknown whether its pods were ready before; it is taken for measured then.
type runs struct {
	mu   sync.Mutex
	jobs map[types.NamespacedName]jobRun
}

// jobRun is one from a resumption to the stop.
type jobRun struct {
	uid   types.UID
	queue metrics.Queue
	// admitted is by Kueue's clock.
	admitted, began time.Time
	// ready is set once its pods were ready, over once it was stopped.
	ready, over bool
}

// begin notes a run, and returns the former one of the same TrainJob, if any is known.
func (r *runs) begin(job *trainjob.TrainJob, begun jobRun) (former jobRun, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := client.ObjectKeyFromObject(job)
	former, known = r.jobs[key]
	if r.jobs == nil {
		r.jobs = map[types.NamespacedName]jobRun{}
	}
	begun.uid = job.UID
	r.jobs[key] = begun
	return former, known && former.uid == job.UID
}

// underWay returns the run of a TrainJob that was not stopped yet, as far as is known.
func (r *runs) underWay(job *trainjob.TrainJob) (jobRun, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known, ok := r.jobs[client.ObjectKeyFromObject(job)]
	return known, ok && known.uid == job.UID && !known.over
}

// ready notes that the pods of the run are.
func (r *runs) ready(job *trainjob.TrainJob) {
	r.change(job, func(known *jobRun) { known.ready = true })
}

// end notes that it was stopped.
func (r *runs) end(job *trainjob.TrainJob) {
	r.change(job, func(known *jobRun) { known.over = true })
}

func (r *runs) change(job *trainjob.TrainJob, change func(*jobRun)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := client.ObjectKeyFromObject(job)
	if known, ok := r.jobs[key]; ok && known.uid == job.UID {
		change(&known)
		r.jobs[key] = known
	}
}

// forget drops what was remembered of a job that is gone or over.
func (r *runs) forget(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.jobs, key)
}
