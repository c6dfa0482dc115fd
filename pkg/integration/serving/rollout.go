// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"errors"
	"sync"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
)

// Rollout is what is known of the roll-out of a Trainer: whether the one that runs reads the field that the CRD
// has. Who upgrades Trainer replaces the CRD first, and the controller of the release before
// works on until another image is there and has the lease. It would make the JobSet of a
// job that is started then without our part: pods on any node, on the quota of a flavor.
type Rollout struct {
	Told

	mu    sync.Mutex
	field patch.Field
	state RolloutState
}

// RolloutState is whether the running Trainer has been seen to read the field.
type RolloutState int

const (
	// RolloutComplete means that a JobSet shows our part, out of the field.
	RolloutComplete RolloutState = iota
	// RolloutUnknown means that this process has not looked at the JobSets yet.
	RolloutUnknown
	// RolloutUnderWay means that the CRD got another field under this process.
	RolloutUnderWay
)

// expect takes note of the field that the CRD has.
func (r *Rollout) expect(field patch.Field) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch r.field {
	case field:
		return
	case nil:
		r.state = RolloutUnknown
	default:
		r.state = RolloutUnderWay
		r.forget()
	}
	r.field = field
}

// State returns what is known now.
func (r *Rollout) State() RolloutState {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state
}

// Complete takes note that the running Trainer reads the field, unless the CRD has another by
// now.
func (r *Rollout) Complete(field patch.Field) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.field == field {
		r.state = RolloutComplete
	}
}

// ErrRollingOut keeps a job from being started by a Trainer that may not see where to.
var ErrRollingOut = errors.New("the running Trainer has not been seen to read the field that the TrainJob CRD has")
