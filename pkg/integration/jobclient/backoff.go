// SPDX-License-Identifier: Apache-2.0

package jobclient

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

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

// failedWrite is a write of a TrainJob that brought nothing, because another webhook undoes, changes or refuses it. It is
// not repeated as fast as it fails. A job that starts, stops and starts again writes the same too, but each time it is kept.
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

func (e *backoffError) Error() string { return e.why }

// may returns a backoffError while the write of a TrainJob has to wait.
func (e *Expectations) may(job *trainjob.TrainJob, write string) error {
	last := e.of(job).vain[write]
	if wait := last.wait(e.clock.Now()); wait > 0 {
		return &backoffError{wait: wait, why: last.why}
	}
	return nil
}

// reverted takes note that the write brought nothing, and why.
func (e *Expectations) reverted(job *trainjob.TrainJob, write, why string) {
	e.note(job, func(m *memory) {
		if m.vain == nil {
			m.vain = map[string]failedWrite{}
		}
		m.vain[write] = failedWrite{times: m.vain[write].times + 1, last: e.clock.Now(), why: why}
	})
}

// kept takes note that the write is stored as it was meant.
func (e *Expectations) kept(job *trainjob.TrainJob, write string) {
	e.note(job, func(m *memory) { delete(m.vain, write) })
}

// changed names the field in which a TrainJob as it is stored differs from what a step set;
// empty: in none. Of the patches only our part counts.
func (c changes) changed(stored *trainjob.Spec) (string, error) {
	// What was decoded from JSON can be encoded.
	data, _ := json.Marshal(c)
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

// BackoffOf returns the time until a write may be made that err is about; 0: it is about none.
func BackoffOf(err error) time.Duration {
	if waits, ok := errors.AsType[*backoffError](err); ok {
		return waits.wait
	}
	return 0
}

// TrainerLags reports whether Trainer's webhook refused a change of the patches for pods
// that are gone already: the JobSet's status, by which it goes, is behind the Jobs', or its
// view of that is behind ours. It says so in the same words in every release.
func TrainerLags(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "is still active")
}

// decides reports whether err is somebody's decision about a write, and no state of the
// API server or of Trainer that passes.
func decides(err error) bool {
	return !TrainerLags(err) &&
		(apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsConflict(err) || apierrors.IsBadRequest(err))
}

// failedTest reports whether the generation is not what our patch says any more: a
// conflict. The API server answers it with 422 and, unlike an invalid object, without
// naming a kind.
func failedTest(err error) bool { return apierrors.IsInvalid(err) && DetailsOf(err).Kind == "" }

// ConflictingWorkload returns the name of the Workload that err is a conflict about; empty:
// it is about something else.
func ConflictingWorkload(err error) string {
	if about := DetailsOf(err); apierrors.IsConflict(err) && about.Group == kueue.SchemeGroupVersion.Group && about.Kind == "workloads" {
		return about.Name
	}
	return ""
}

// DetailsOf returns what an API server, or a cache, says that err is about.
func DetailsOf(err error) metav1.StatusDetails {
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil {
		return *status.Status().Details
	}
	return metav1.StatusDetails{}
}
