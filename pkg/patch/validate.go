// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// Path is where the entries stand in a TrainJob of Trainer 2.2 and later.
var Path = field.NewPath("spec", "runtimePatches")

// UnknownJobs returns an error for every patch of a replicated job that the runtime
// does not have. A merge would add such a job, with nothing in it.
func UnknownJobs(patches []trainjob.RuntimePatch, runtimeJobs []string) field.ErrorList {
	var errs field.ErrorList
	known := sets.New(runtimeJobs...)
	for _, p := range patches {
		jobs, err := Jobs(p)
		if err != nil {
			errs = append(errs, field.Invalid(Path.Key(p.Manager), p.Manager, err.Error()))
			continue
		}
		path := Path.Key(p.Manager).Child("trainingRuntimeSpec", "template", "spec", "replicatedJobs")
		for i, name := range jobs {
			if !known.Has(name) {
				errs = append(errs, field.Invalid(path.Index(i).Child("name"), name, noSuchJob(runtimeJobs)))
			}
		}
	}
	return errs
}

func noSuchJob(runtimeJobs []string) string {
	return "the runtime has no replicated job of this name; it has: " + strings.Join(runtimeJobs, ", ")
}

// Changed returns an error when our part is not what it has to be after an update by anyone
// but the manager itself: what it was before or, where there was none, what it is in
// allowed, which is what the manager's webhook puts there.
func Changed(f Field, before, after, allowed *trainjob.Spec) field.ErrorList {
	want := before
	if !f.Has(before) {
		want = allowed
	}
	if !f.Has(after) || (want != nil && f.Same(want, after)) {
		return nil
	}
	return field.ErrorList{f.Refusal()}
}
