// SPDX-License-Identifier: Apache-2.0

package podtracking

import (
	"slices"
	"time"

	"k8s.io/utils/ptr"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// ResumeGrace is how long Trainer, JobSet and the Job controller may be busy with what they saw of a job before.
const ResumeGrace = 5 * time.Second

// resumeGrace returns how long Trainer may still resume a suspended job because it saw a start
// that was taken back. A leader before this one may have started it too, until this one
// began to lead, but not later than our entry was written.
func (p Pods) resumeGrace(job *trainjob.TrainJob) time.Duration {
	stopped, ok := p.Expectations.StoppedBeforeResume(job)
	if !ok && p.Field.Has(&job.Spec) {
		stopped = p.Expectations.LedSince()
		if written := p.Field.Time(&job.Spec); !written.IsZero() && written.Before(stopped) {
			stopped = written
		}
	}
	return max(0, stopped.Add(ResumeGrace).Sub(p.View.At))
}

// NoteResumed takes note of a JobSet that runs and has a child Job that does, by the word of the Job controller:
// before that, a pod may be under way which nobody counts yet.
func (p Pods) NoteResumed(job *trainjob.TrainJob) {
	js := p.View.JobSetOf(job)
	if js != nil && !ptr.Deref(js.Spec.Suspend, false) && slices.ContainsFunc(p.View.ChildJobsOf(job), state.SeenResumed) {
		p.Expectations.SawResumed(job)
	}
}

// MayStillResume returns how long Trainer may still resume a job that was stopped, because it
// began to before: a JobSet that ran, until it has the gate, which is only ever written to a
// suspended job; one that was not seen to run, or is not there, for a while. Trainer before
// 2.3 cannot bring the gate there when the runtime was edited, so that time is limited too.
func (p Pods) MayStillResume(job *trainjob.TrainJob, js *jobsetapi.JobSet) time.Duration {
	if !job.Suspended() || job.ManagedExternally() {
		return 0
	}
	if js == nil || !state.LacksGate(js, job, p.Field) {
		return p.resumeGrace(job)
	}
	written := p.Field.Time(&job.Spec)
	// Trainer's webhook stamped the entry when the gate was written, by its own clock, which may be behind.
	if by := p.Expectations.WroteBy(job); by.After(written) {
		written = by
	}
	return min(ResumeGrace, max(0, written.Add(ResumeGrace).Sub(p.View.At)))
}
