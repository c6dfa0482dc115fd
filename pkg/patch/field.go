// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// ErrInvalidPatches is of patches that cannot be rendered. Only their user can fix them.
var ErrInvalidPatches = errors.New("the patches cannot be described")

// Field is the field of a TrainJob's spec by which a generation of Trainer lets it patch
// its runtime, and our part in it: an entry of spec.runtimePatches, or several of
// spec.podTemplateOverrides.
type Field interface {
	// Path is where the field stands.
	Path() *field.Path

	// Has reports whether our part is there.
	Has(spec *trainjob.Spec) bool
	// Last reports whether it is there once and after everybody else's: later ones win.
	Last(spec *trainjob.Spec) bool
	// Same reports whether our parts of two specs say the same.
	Same(a, b *trainjob.Spec) bool
	// Jobs names the replicated jobs that our part patches, in its order.
	Jobs(spec *trainjob.Spec) ([]string, error)
	// HoldsGate reports whether our part keeps any replicated job behind the admission gate.
	HoldsGate(spec *trainjob.Spec) bool
	// Gates reports whether our part keeps the named replicated job behind it.
	Gates(spec *trainjob.Spec, replicatedJob string) bool

	// Surplus warns of what our part says and no placement can: somebody else wrote it, and it
	// is lost with the next Set or Drop. Where parts have owners there is none.
	Surplus(spec *trainjob.Spec) (warnings []string)

	// Time is when Trainer stamped our part; zero where it stamps nothing.
	Time(spec *trainjob.Spec) time.Time

	// Set replaces our part by what the placements say, one per replicated job, and puts
	// it last. Where it says so and is last already it stays as it is, unchanged.
	Set(spec *trainjob.Spec, placements []Placement) (changed bool, err error)
	// Copy puts our part of another spec last.
	Copy(spec, from *trainjob.Spec)
	// Drop takes our part away.
	Drop(spec *trainjob.Spec)
	// Restore puts everybody else's parts back to the bytes they have in old, where a writer
	// only spelled them again; with own, always.
	Restore(spec, old *trainjob.Spec, own bool)

	// All returns what spec says, our part included, in the patches of the newest Trainer,
	// for its library to render, or ErrInvalidPatches.
	All(spec *trainjob.Spec) ([]trainjob.RuntimePatch, error)
	// Others returns the same without our part.
	Others(spec *trainjob.Spec) ([]trainjob.RuntimePatch, error)

	// UnknownJobs returns an error for every patch of others of a replicated job that the
	// runtime does not have.
	UnknownJobs(spec *trainjob.Spec, runtimeJobs []string) field.ErrorList
	// ReservedByOthers returns the places where patches of others set what only the manager
	// or Kueue may: their scheduling gates, and the label of gated pods.
	ReservedByOthers(spec *trainjob.Spec) []*field.Path
	// Refusal says that our part is not for users to change.
	Refusal() *field.Error
}

// Patched reports whether our part patches any replicated job. The in-tree integration adds an entry to every TrainJob,
// in a queue or not: one without jobs says nothing of a queue.
func Patched(f Field, spec *trainjob.Spec) bool {
	jobs, err := f.Jobs(spec)
	return err != nil || len(jobs) > 0
}

// Of returns the field of a generation.
func Of(served trainjob.TrainerVersion) Field {
	if served == trainjob.Trainer21 {
		return podTemplateOverrides{}
	}
	return runtimePatches{}
}
