// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// Path is where the entries stand in a TrainJob.
var Path = field.NewPath("spec", "runtimePatches")

// UnknownJobs gives an error for every patch of a replicated job that the runtime
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
				errs = append(errs, field.Invalid(path.Index(i).Child("name"), name, fmt.Sprintf(
					"the runtime has no replicated job of this name; it has: %s", strings.Join(runtimeJobs, ", "))))
			}
		}
	}
	return errs
}

// Changed gives an error when our entry is not what it has to be after an update by
// anyone but the manager itself: what it was before or, where there was none, allowed,
// which is what the manager's webhook puts there.
func Changed(before, after []trainjob.RuntimePatch, allowed *trainjob.RuntimePatch) field.ErrorList {
	want, now := Find(before), Find(after)
	if want == nil {
		want = allowed
	}
	if now == nil || (want != nil && Same(*want, *now)) {
		return nil
	}
	return field.ErrorList{field.Forbidden(Path.Key(Manager),
		"this entry belongs to the manager of queued TrainJobs; put your changes into an entry with another manager name")}
}
