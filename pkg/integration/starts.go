// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"crypto/sha256"
	"encoding/json"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// defaultStartTimeout is how long an admitted job may be without what it needs to run.
const defaultStartTimeout = 2 * time.Minute

// longestHold bounds the time for which a job that could not start stays out of its queue.
const longestHold = time.Hour

// startRecord is what is remembered of the starts of a TrainJob, also of those that failed, for which it stays out of its
// queue.
type startRecord struct {
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
// time until a refusal is to be looked for, first after timeout, and whether the job once lacked nothing since it was
// admitted.
func (s *startRecord) lacks(by admission, timeout time.Duration) (lacking, wait time.Duration, complete bool) {
	now := time.Now()
	if s.admission != by {
		s.admission, s.lacking, s.complete = by, time.Time{}, false
	}
	if s.lacking.IsZero() {
		s.lacking, s.look = now, now.Add(timeout)
	}
	return now.Sub(s.lacking), max(0, s.look.Sub(now)), s.complete
}

// looked notes that a refusal was looked for, and returns the time to the next look.
func (s *startRecord) looked(timeout time.Duration) time.Duration {
	s.look = time.Now().Add(timeout)
	return timeout
}

// lacksNothing notes that a job has started: what it did before is forgotten.
func (s *startRecord) lacksNothing(by admission) { *s = startRecord{admission: by, complete: true} }

// holdBack keeps a job that gives a Workload back out of its queue, twice as long as the last
// time, and returns for how long.
func (s *startRecord) holdBack(wl types.UID, sum [sha256.Size]byte, timeout time.Duration) time.Duration {
	if s.sum != sum {
		s.tries = 0
	}
	hold := min(longestHold, timeout/2<<min(s.tries, 16))
	*s = startRecord{tries: s.tries + 1, hold: hold, until: time.Now().Add(hold), former: wl, sum: sum}
	return hold
}

// quotaGoes notes that the quota of a Workload goes now, which may be long after the job was held
// back for it: from here on it stays out of its queue, so that others have their turn.
func (s *startRecord) quotaGoes(wl types.UID) {
	if s.former == wl && wl != "" {
		s.until = time.Now().Add(s.hold)
	}
}

// heldBack returns how much longer a job stays out of its queue; not at all when its user
// has changed it.
func (s *startRecord) heldBack(job *trainjob.TrainJob, field patch.Field) time.Duration {
	if !time.Now().Before(s.until) || s.sum != sumOf(job, field) {
		return 0
	}
	return time.Until(s.until)
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
