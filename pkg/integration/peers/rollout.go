// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// Rollout is what is known of the roll-out of a Trainer: whether the one that runs reads the field that the CRD
// has. Who upgrades Trainer replaces the CRD first, and the controller of the release before
// works on until another image is there and has the lease. It would make the JobSet of a
// job that is started then without our part: pods on any node, on the quota of a flavor. And 2.2 reads the field of 2.3,
// but has resourcesPerNode replace what 2.3 merges it into: the job would hold quota that its pods do not use.
type Rollout struct {
	mu     sync.Mutex
	served trainjob.TrainerVersion
	field  patch.Field
	state  rolloutState
	// freezes is set while the CRD is of 2.3, was of 2.2 under this process, and no snapshot has been seen since. JobSets tell
	// nothing then. A snapshot of any time does: the newer Trainer may have been there before its CRD.
	freezes bool
	// since is when the CRD got the field under this process; zero: it had it before.
	since time.Time
	last  scan
}

// scan is what the JobSets of a cluster showed, when they were looked at for a field.
type scan struct {
	field       patch.Field
	at          time.Time
	this, other bool
}

// scanPeriod is how long that is good for: thousands of jobs may wait for it at a time.
const scanPeriod = time.Second

// rolloutState is whether the running Trainer has been seen to read the field.
type rolloutState int

const (
	// rolloutComplete means that a JobSet shows our part, out of the field.
	rolloutComplete rolloutState = iota
	// rolloutUnknown means that this process has not looked at the JobSets yet.
	rolloutUnknown
	// rolloutUnderWay means that the CRD got another field under this process.
	rolloutUnderWay
)

// expect takes note of the version that the CRD has.
func (r *Rollout) expect(served trainjob.TrainerVersion) {
	r.mu.Lock()
	defer r.mu.Unlock()
	field := patch.Of(served)
	r.freezes = (r.freezes || r.served == trainjob.Trainer22) && served == trainjob.Trainer23
	if r.served == trainjob.Trainer23 && served == trainjob.Trainer22 {
		r.since = time.Now() // Snapshots of before tell nothing when 2.3 comes again.
	}
	r.served = served
	switch r.field {
	case field:
		return
	case "":
		r.state = rolloutUnknown
	default:
		r.state, r.since = rolloutUnderWay, time.Now()
	}
	// What was seen under another field says nothing when this one comes back.
	r.field, r.last = field, scan{}
}

// ErrRollingOut keeps a job from being started by a Trainer that may not see where to.
var ErrRollingOut = errors.New("the running Trainer has not been seen to read TrainJobs as that of their CRD does")

// Check returns ErrRollingOut while it is open whether the running Trainer reads field. It
// asks caches alone, and not even those once there was an answer: a JobSet that shows our
// part, of this TrainJob, or of whichever where it was made since the CRD has the field: Trainer leaves those of running
// jobs as they are, and the field may have been there before. With Trainer 2.3 a snapshot of the job's runtime, of that time, is
// one as well, for the JobSets that a newer Trainer cannot change, and after 2.2 the only one. A job that another
// controller runs, as MultiKueue does in another cluster, does not depend on this Trainer.
func (r *Rollout) Check(ctx context.Context, cached client.Reader, runtimes *trainjob.Runtimes, field patch.Field, job *trainjob.TrainJob) error {
	r.mu.Lock()
	known, freezes, since := r.state, r.freezes, r.since.Truncate(time.Second)
	r.mu.Unlock()
	if known == rolloutComplete && !freezes || job.ManagedExternally() {
		return nil
	}
	seen, err := r.shown(ctx, cached, field)
	this := seen.this
	if err == nil && !this {
		var js jobsetapi.JobSet
		err = client.IgnoreNotFound(cached.Get(ctx, client.ObjectKeyFromObject(job), &js))
		this = state.IsControlledBy(&js, job) && podset.FieldOf(&js) == field
	}
	if err != nil {
		return err
	}
	if freezes || !this && (known == rolloutUnderWay || seen.other) {
		taken, err := runtimes.SnapshotTaken(ctx, job)
		if err != nil {
			return err
		}
		if taken.IsZero() || taken.Before(since) {
			return ErrRollingOut
		}
	}
	r.mu.Lock()
	if r.field == field {
		// The CRD may have another by now.
		r.state, r.freezes = rolloutComplete, r.freezes && !freezes
	}
	r.mu.Unlock()
	ctrl.LoggerFrom(ctx).Info("Saw the running Trainer read the patches", "field", field.Path())
	return nil
}

// shown returns whether there are JobSets with our part out of field, made since the CRD has that, and with our part out of
// another. It looks once in a while for all jobs.
func (r *Rollout) shown(ctx context.Context, cached client.Reader, field patch.Field) (scan, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last.field == field && time.Since(r.last.at) < scanPeriod {
		return r.last, nil
	}
	var list jobsetapi.JobSetList
	if err := cached.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return scan{}, fmt.Errorf("listing the JobSets, to see what Trainer reads: %w", err)
	}
	r.last = scan{field: field, at: time.Now()}
	for i := range list.Items {
		js := &list.Items[i]
		if of := podset.FieldOf(js); of != "" && state.ControllerOfKind(js, trainjob.GVK) != nil {
			r.last.this = r.last.this || of == field && !js.CreationTimestamp.Time.Before(r.since.Truncate(time.Second))
			r.last.other = r.last.other || of != field
		}
	}
	return r.last, nil
}
