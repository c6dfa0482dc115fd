// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"sync"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// defaultStartTimeout is how long an admitted job may be without what it needs to run.
const defaultStartTimeout = 2 * time.Minute

// longestHold bounds the time for which a job that could not start stays out of its queue.
const longestHold = time.Hour

// starts remember what jobs lack of their start, and which of them stay out of their queue
// because they could not start.
type starts struct {
	timeout time.Duration

	mu   sync.Mutex
	jobs map[types.NamespacedName]*startRecord
}

// startRecord is what is remembered of one TrainJob.
type startRecord struct {
	uid types.UID
	// admission is what the next three are about: since when the job lacks something, when to look
	// for a refusal again, and whether it once lacked nothing.
	admission admission
	lacking   time.Time
	look      time.Time
	complete  bool

	// tries counts the starts that failed in a row of the job as it is, by its sum. For hold it
	// stays out of its queue, until a time, since the Workload of former was given back.
	tries  int
	hold   time.Duration
	until  time.Time
	former types.UID
	sum    [sha256.Size]byte

	// unmade is what is known of a job that has no JobSet yet.
	unmade unmade
}

func newStarts(timeout time.Duration) *starts {
	return &starts{timeout: cmp.Or(timeout, defaultStartTimeout), jobs: map[types.NamespacedName]*startRecord{}}
}

// of is for who holds the lock.
func (s *starts) of(job *trainjob.TrainJob) *startRecord {
	key := client.ObjectKeyFromObject(job)
	if known := s.jobs[key]; known == nil || known.uid != job.UID {
		s.jobs[key] = &startRecord{uid: job.UID}
	}
	return s.jobs[key]
}

// admission is one of the times that a Workload was admitted: Kueue admits the same one again.
type admission struct {
	workload types.UID
	// since is in seconds, as conditions have it.
	since int64
}

func admissionOf(wl *kueue.Workload) admission {
	a := admission{workload: wl.UID}
	if admitted := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadAdmitted); admitted != nil {
		a.since = admitted.LastTransitionTime.Unix()
	}
	return a
}

// lacks notes that an admitted job lacks something. It returns for how long by our own clock, the
// time until a refusal is to be looked for, and whether the job once lacked nothing since it was
// admitted.
func (s *starts) lacks(job *trainjob.TrainJob, by admission) (lacking, wait time.Duration, complete bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st, now := s.of(job), time.Now()
	if st.admission != by {
		st.admission, st.lacking, st.complete = by, time.Time{}, false
	}
	if st.lacking.IsZero() {
		st.lacking, st.look = now, now.Add(s.timeout)
	}
	return now.Sub(st.lacking), max(0, st.look.Sub(now)), st.complete
}

// looked notes that a refusal was looked for, and returns the time to the next look.
func (s *starts) looked(job *trainjob.TrainJob) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of(job).look = time.Now().Add(s.timeout)
	return s.timeout
}

// lacksNothing notes that a job has started: what it did before is forgotten.
func (s *starts) lacksNothing(job *trainjob.TrainJob, by admission) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*s.of(job) = startRecord{uid: job.UID, admission: by, complete: true}
}

// holdBack keeps a job that gives a Workload back out of its queue, twice as long as the last
// time, and returns for how long.
func (s *starts) holdBack(job *trainjob.TrainJob, wl types.UID, field patch.Field) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	st, sum := s.of(job), sumOf(job, field)
	if st.sum != sum {
		st.tries = 0
	}
	hold := min(longestHold, s.timeout/2<<min(st.tries, 16))
	*st = startRecord{uid: job.UID, tries: st.tries + 1, hold: hold, until: time.Now().Add(hold), former: wl, sum: sum}
	return hold
}

// quotaGoes notes that the quota of a Workload goes now, which may be long after the job was held
// back for it: from here on it stays out of its queue, so that others have their turn.
func (s *starts) quotaGoes(job *trainjob.TrainJob, wl types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.jobs[client.ObjectKeyFromObject(job)]; st != nil && st.uid == job.UID && st.former == wl {
		st.until = time.Now().Add(st.hold)
	}
}

// heldBack returns how much longer a job stays out of its queue; not at all when its user
// has changed it.
func (s *starts) heldBack(job *trainjob.TrainJob, field patch.Field) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.jobs[client.ObjectKeyFromObject(job)]
	if st == nil || st.uid != job.UID || !time.Now().Before(st.until) || st.sum != sumOf(job, field) {
		return 0
	}
	return time.Until(st.until)
}

// forget drops what was remembered of a job that is gone.
func (s *starts) forget(key types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.jobs, key)
}

// sumOf sums up what its user says of a job: the spec without our part and without suspend,
// labels and annotations.
func sumOf(job *trainjob.TrainJob, field patch.Field) [sha256.Size]byte {
	spec := job.DeepCopy().Spec
	field.Drop(&spec)
	spec.Suspend = nil
	data, err := json.Marshal([]any{spec, job.Labels, job.Annotations})
	if err != nil {
		// It was decoded from JSON. A change is not seen then, and time passes anyway.
		return [sha256.Size]byte{}
	}
	return sha256.Sum256(data)
}
