// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// runtimePatches is the field of Trainer 2.2 and later, where an entry has a manager.
type runtimePatches struct{}

func (runtimePatches) Path() *field.Path { return Path }

func (runtimePatches) Has(spec *trainjob.Spec) bool { return find(spec.RuntimePatches) != nil }

func (runtimePatches) Last(spec *trainjob.Spec) bool { return Last(spec.RuntimePatches) }

func (runtimePatches) Same(a, b *trainjob.Spec) bool {
	one, other := find(a.RuntimePatches), find(b.RuntimePatches)
	return one != nil && other != nil && Same(*one, *other)
}

func (runtimePatches) Jobs(spec *trainjob.Spec) ([]string, error) {
	ours := find(spec.RuntimePatches)
	if ours == nil {
		return nil, nil
	}
	return Jobs(*ours)
}

func (runtimePatches) HoldsGate(spec *trainjob.Spec) bool {
	ours := find(spec.RuntimePatches)
	return ours != nil && HoldsGate(*ours)
}

func (runtimePatches) Gates(spec *trainjob.Spec, replicatedJob string) bool {
	ours := find(spec.RuntimePatches)
	return ours != nil && Gates(*ours, replicatedJob)
}

// Time is when our entry was last changed.
func (runtimePatches) Time(spec *trainjob.Spec) time.Time {
	ours := find(spec.RuntimePatches)
	if ours == nil {
		return time.Time{}
	}
	entry, err := ours.Decode()
	if err != nil || entry.Time == nil {
		return time.Time{}
	}
	return entry.Time.Time
}

// Surplus does not look: who writes under the manager's name means the manager's entry.
func (runtimePatches) Surplus(*trainjob.Spec) []string { return nil }

func (f runtimePatches) Set(spec *trainjob.Spec, placements []Placement) (bool, error) {
	entry, err := Entry(placements)
	if err != nil {
		return false, err
	}
	if ours := find(spec.RuntimePatches); ours != nil && f.Last(spec) && Same(*ours, entry) {
		return false, nil
	}
	spec.RuntimePatches = With(spec.RuntimePatches, entry)
	return true, nil
}

func (runtimePatches) Copy(spec, from *trainjob.Spec) {
	if ours := find(from.RuntimePatches); ours != nil {
		spec.RuntimePatches = With(spec.RuntimePatches, *ours)
	}
}

func (f runtimePatches) Drop(spec *trainjob.Spec) {
	if f.Has(spec) {
		spec.RuntimePatches = Others(spec.RuntimePatches)
	}
}

func (runtimePatches) Restore(spec, old *trainjob.Spec, own bool) {
	for i, now := range spec.RuntimePatches {
		if now.Manager == Manager {
			continue
		}
		if before := FindManager(old.RuntimePatches, now.Manager); before != nil && !now.Equal(*before) && (own || now.SemanticallyEqual(*before)) {
			spec.RuntimePatches[i] = *before
		}
	}
}

func (runtimePatches) All(spec *trainjob.Spec) ([]trainjob.RuntimePatch, error) {
	return spec.RuntimePatches, nil
}

func (runtimePatches) Others(spec *trainjob.Spec) ([]trainjob.RuntimePatch, error) {
	return Others(spec.RuntimePatches), nil
}

func (runtimePatches) UnknownJobs(spec *trainjob.Spec, runtimeJobs []string) field.ErrorList {
	return UnknownJobs(Others(spec.RuntimePatches), runtimeJobs)
}

func (runtimePatches) Refusal() *field.Error {
	return field.Forbidden(Path.Key(Manager),
		"this entry belongs to the manager of queued TrainJobs; put your changes into an entry with another manager name")
}
