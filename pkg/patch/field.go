// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"errors"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// ErrInvalidPatches is of patches that cannot be rendered. Only their user can fix them.
var ErrInvalidPatches = errors.New("the patches cannot be described")

// Field is the field of a TrainJob's spec by which a generation of Trainer lets it patch
// its runtime, and our part in it: an entry of spec.runtimePatches, or several of
// spec.podTemplateOverrides. Empty: no field.
type Field string

const (
	// runtimePatches is the field of Trainer 2.2 and later, where an entry has a manager.
	runtimePatches Field = "runtimePatches"
	// podTemplateOverrides is the field of Trainer 2.1, a list without owners and without
	// keys. Our part is one override for each replicated job. Trainer applies the overrides
	// of a job in their order, each as a strategic merge patch: tolerations replace the whole
	// list, everything else of a placement is merged by key, as in runtimePatches.
	podTemplateOverrides Field = "podTemplateOverrides"
)

// Of returns the field of a generation.
func Of(served trainjob.TrainerVersion) Field {
	if served == trainjob.Trainer21 {
		return podTemplateOverrides
	}
	return runtimePatches
}

// Path is where the field stands.
func (f Field) Path() *field.Path { return field.NewPath("spec", string(f)) }

// entries are all that stands in the field, to be read or replaced.
func (f Field) entries(spec *trainjob.Spec) *[]trainjob.RuntimePatch {
	if f == podTemplateOverrides {
		return &spec.PodTemplateOverrides
	}
	return &spec.RuntimePatches
}

// split returns our entries and everybody else's, each in their order.
func (f Field) split(spec *trainjob.Spec) (ours, others []trainjob.RuntimePatch) {
	for _, p := range *f.entries(spec) {
		if p.Ours() {
			ours = append(ours, p)
		} else {
			others = append(others, p)
		}
	}
	return ours, others
}

// Has reports whether our part is there.
func (f Field) Has(spec *trainjob.Spec) bool {
	return slices.ContainsFunc(*f.entries(spec), trainjob.RuntimePatch.Ours)
}

// Last reports whether it is there and after everybody else's: later ones win.
func (f Field) Last(spec *trainjob.Spec) bool {
	ours, others := f.split(spec)
	behind := (*f.entries(spec))[len(others):]
	return len(ours) > 0 && !slices.ContainsFunc(behind, func(p trainjob.RuntimePatch) bool { return !p.Ours() })
}

// Same reports whether our parts of two specs say the same.
func (f Field) Same(a, b *trainjob.Spec) bool {
	one, _ := f.split(a)
	other, _ := f.split(b)
	return len(one) > 0 && slices.EqualFunc(one, other, trainjob.RuntimePatch.SameButTime)
}

func (f Field) jobs(spec *trainjob.Spec) ([]patchedJob, error) {
	ours, _ := f.split(spec)
	var all []patchedJob
	for _, p := range ours {
		jobs, err := f.jobsOf(p)
		if err != nil {
			return nil, err
		}
		all = append(all, jobs...)
	}
	return all, nil
}

// Jobs names the replicated jobs that our part patches, in its order.
func (f Field) Jobs(spec *trainjob.Spec) ([]string, error) {
	jobs, err := f.jobs(spec)
	return kueuelib.Map(jobs, func(job *patchedJob) string { return job.name }), err
}

// Patched reports whether our part patches any replicated job. The in-tree integration adds an entry to every TrainJob,
// in a queue or not: one without jobs says nothing of a queue.
func Patched(f Field, spec *trainjob.Spec) bool {
	jobs, err := f.jobs(spec)
	return err != nil || len(jobs) > 0
}

// HoldsGate reports whether our part keeps any replicated job behind the admission gate. One
// that cannot be read holds none.
func (f Field) HoldsGate(spec *trainjob.Spec) bool {
	jobs, err := f.jobs(spec)
	return err == nil && slices.ContainsFunc(jobs, func(job patchedJob) bool { return job.gated })
}

// HoldsGate reports whether our part of a TrainJob of any generation keeps a replicated job behind the admission gate.
func HoldsGate(spec *trainjob.Spec) bool {
	return runtimePatches.HoldsGate(spec) || podTemplateOverrides.HoldsGate(spec)
}

// Gates reports whether our part keeps the named replicated job behind it.
func (f Field) Gates(spec *trainjob.Spec, replicatedJob string) bool {
	jobs, err := f.jobs(spec)
	return err == nil && slices.Contains(jobs, patchedJob{replicatedJob, true})
}

// Time is when Trainer stamped our part; zero where it stamps nothing.
func (f Field) Time(spec *trainjob.Spec) time.Time {
	var stamp struct {
		Time metav1.Time `json:"time"`
	}
	if ours, _ := f.split(spec); len(ours) == 0 || ours[0].DecodeInto(&stamp) != nil {
		return time.Time{}
	}
	return stamp.Time.Time
}

// Set replaces our part by what the placements say, one per replicated job, and puts
// it last. Where it says so and is last already it stays as it is, unchanged.
func (f Field) Set(spec *trainjob.Spec, placements []Placement) (changed bool) {
	var set trainjob.Spec
	*f.entries(&set) = f.entriesFor(placements)
	if f.Last(spec) && f.Same(spec, &set) {
		return false
	}
	f.Copy(spec, &set)
	return true
}

// Copy puts our part of another spec last.
func (f Field) Copy(spec, from *trainjob.Spec) {
	ours, _ := f.split(from)
	_, others := f.split(spec)
	*f.entries(spec) = slices.Concat(others, ours)
}

// Drop takes our part away.
func (f Field) Drop(spec *trainjob.Spec) { f.Copy(spec, &trainjob.Spec{}) }

// Restore puts everybody else's parts back to the bytes they have in old, where a writer
// only spelled them again; with own, which is for a write of the manager's, always. Trainer 2.1
// has no webhook that spells anything again.
func (f Field) Restore(spec, old *trainjob.Spec, own bool) {
	if own {
		ours, _ := f.split(spec)
		_, others := f.split(old)
		*f.entries(spec) = slices.Concat(others, ours)
		return
	}
	for i, now := range spec.RuntimePatches {
		before := slices.IndexFunc(old.RuntimePatches, func(p trainjob.RuntimePatch) bool { return p.Manager == now.Manager })
		if !now.Ours() && before >= 0 && now.SemanticallyEqual(old.RuntimePatches[before]) {
			spec.RuntimePatches[i] = old.RuntimePatches[before]
		}
	}
}

// All returns what spec says, our part included, in the patches of the newest Trainer,
// for its library to render, or ErrInvalidPatches.
func (f Field) All(spec *trainjob.Spec) ([]trainjob.RuntimePatch, error) {
	return f.rendered(*f.entries(spec))
}

// Others returns the same without our part.
func (f Field) Others(spec *trainjob.Spec) ([]trainjob.RuntimePatch, error) {
	_, others := f.split(spec)
	return f.rendered(others)
}
