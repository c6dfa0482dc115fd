// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// reads is what we know of the Trainer that runs: whether it reads the field that the CRD
// has. Who upgrades Trainer replaces the CRD first, and the controller of the release before
// works on until another image is there and has the lease. It would make the JobSet of a
// job that is started then without our part: pods on any node, on the quota of a flavor.
type reads struct {
	told

	mu    sync.Mutex
	field patch.Field
	doubt doubt
}

// doubt is why it is open whether the running Trainer reads the field.
type doubt int

const (
	// noDoubt: a JobSet shows our part, out of the field.
	noDoubt doubt = iota
	// justStarted: this process has not looked at the JobSets yet.
	justStarted
	// fieldChanged: the CRD got another field under this process.
	fieldChanged
)

// expect takes note of the field that the CRD has.
func (r *reads) expect(field patch.Field) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch r.field {
	case field:
		return
	case nil:
		r.doubt = justStarted
	default:
		r.doubt = fieldChanged
		r.forget()
	}
	r.field = field
}

func (r *reads) doubted() doubt {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.doubt
}

// trust ends the doubt, unless the CRD has another field by now.
func (r *reads) trust(field patch.Field) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.field == field {
		r.doubt = noDoubt
	}
}

// errUnread keeps a job from being started by a Trainer that may not see where to.
var errUnread = errors.New("the running Trainer has not been seen to read the field that the TrainJob CRD has")

// read returns errUnread while it is open whether the running Trainer reads our field. It
// asks caches alone, and not even those once there was an answer: a JobSet that shows our
// part, whichever TrainJob it is of. With Trainer 2.3 a snapshot of the job's runtime is
// one as well, for the JobSets that a newer Trainer cannot change. A job that another
// controller runs, as MultiKueue does in another cluster, does not depend on this Trainer.
func (e *environment) read(ctx context.Context, job *trainjob.TrainJob) error {
	why := e.trainer.reads.doubted()
	if why == noDoubt || job.Elsewhere() {
		return nil
	}
	this, other, err := e.shown(ctx)
	if err != nil {
		return err
	}
	if !this && (why == fieldChanged || other) {
		taken, err := e.snapshotTaken(ctx, job)
		if err != nil {
			return err
		}
		if taken.IsZero() {
			return errUnread
		}
	}
	e.trainer.reads.trust(e.field)
	return nil
}

// shown reports whether there are JobSets with our part out of our field, and out of another.
func (e *environment) shown(ctx context.Context) (this, other bool, err error) {
	var list jobsetapi.JobSetList
	if err := e.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return false, false, fmt.Errorf("listing the JobSets, to see what Trainer reads: %w", err)
	}
	for i := range list.Items {
		if controllerOfKind(&list.Items[i], trainjob.GVK.Kind) == nil {
			continue
		}
		switch podset.FieldOf(&list.Items[i]) {
		case nil:
		case e.field:
			this = true
		default:
			other = true
		}
	}
	return this, other, nil
}

func (e *environment) snapshotTaken(ctx context.Context, job *trainjob.TrainJob) (time.Time, error) {
	if e.runtimes.Served < trainjob.Trainer23 {
		return time.Time{}, nil
	}
	return e.runtimes.SnapshotTaken(ctx, job)
}

// unreadFor is how long a JobSet may go without showing our part before it is made again.
const unreadFor = 30 * time.Second

// awaitReading tells the user of an admitted job why it is not started, and has its JobSet
// made again when it stays as it is: where the releases render a runtime differently,
// JobSet lets the newer Trainer change nothing of it.
func (r *reconciler) awaitReading(ctx context.Context, j *job) error {
	field := r.env.field.Path()
	if r.env.trainer.reads.first(j.UID) {
		r.env.recorder.Resolve(j.UID, jobevents.ReasonTrainerBehind)
		r.env.warn(&j.TrainJob, jobevents.ReasonTrainerBehind, jobevents.ActionStart, fmt.Errorf(
			"admitted, and starts when the running Trainer is seen to read %s, which the TrainJob CRD has now: the controller of another release may still be at work", field))
	}
	js, err := r.env.jobSet(ctx, &j.TrainJob)
	if err != nil || js == nil || !js.DeletionTimestamp.IsZero() || !ptr.Deref(js.Spec.Suspend, false) {
		return err
	}
	since := r.env.expectations.wroteBy(&j.TrainJob)
	if js.CreationTimestamp.After(since) {
		since = js.CreationTimestamp.Time
	}
	if time.Since(since) < unreadFor {
		return nil
	}
	return r.renewJobSet(ctx, j, js, fmt.Sprintf("Trainer has not brought %s to JobSet %s, whose runtime may have been edited since it was made", field, js.Name))
}
