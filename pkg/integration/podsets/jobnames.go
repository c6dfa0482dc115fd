// SPDX-License-Identifier: Apache-2.0

package podsets

import (
	"context"
	"errors"

	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// replicatedJobs names the replicated jobs of job's runtime. Where that is gone or cannot be
// read, the ones that our part already names serve as well, or those of the JobSet: a job
// has to stop whatever became of its runtime.
func (d *Describer) replicatedJobs(ctx context.Context, job *trainjob.TrainJob) ([]string, error) {
	runtime, err := d.Runtimes.For(ctx, job)
	if err == nil && len(runtime.Template.Spec.ReplicatedJobs) > 0 {
		return namesOf(runtime.Template.Spec.ReplicatedJobs), nil
	}
	known, errKnown := d.knownJobs(ctx, job)
	if errKnown != nil || len(known) == 0 {
		return nil, err
	}
	if errors.Is(err, trainjob.ErrSnapshotUnreadable) {
		d.Recorder.Warn(job, jobevents.ReasonNotDescribed, jobevents.ActionDescribe, err)
	}
	return known, nil
}

// knownJobs names the replicated jobs that job was seen to have.
func (d *Describer) knownJobs(ctx context.Context, job *trainjob.TrainJob) ([]string, error) {
	if d.Field.Has(&job.Spec) {
		return d.Field.Jobs(&job.Spec)
	}
	js, err := state.JobSetOf(ctx, d.Cached, job)
	if err != nil || js == nil {
		return nil, err
	}
	return namesOf(js.Spec.ReplicatedJobs), nil
}

func namesOf(replicatedJobs []jobsetapi.ReplicatedJob) []string {
	var names []string
	for i := range replicatedJobs {
		names = append(names, replicatedJobs[i].Name)
	}
	return names
}

// WithoutNames reports whether err says that nothing names the replicated jobs of a job:
// then there is no JobSet of it that could run, and nothing to put a gate on.
func WithoutNames(err error) bool {
	return RuntimeMissing(err) || errors.Is(err, trainjob.ErrSnapshotUnreadable)
}

// RuntimeMissing reports whether only the user can fix err, by naming or making a runtime.
func RuntimeMissing(err error) bool {
	return errors.Is(err, trainjob.ErrRuntimeNotFound) || errors.Is(err, trainjob.ErrRuntimeUnsupported)
}
