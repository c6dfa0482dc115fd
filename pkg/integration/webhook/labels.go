// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"fmt"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

var (
	queueNamePath = labelPath(kueueconstants.QueueLabel)
	maxExecPath   = labelPath(kueueconstants.MaxExecTimeSecondsLabel)
	priorityPath  = labelPath(kueueconstants.WorkloadPriorityClassLabel)
)

func labelPath(label string) *field.Path { return field.NewPath("metadata", "labels").Key(label) }

// labelRemedies say what to do where jobframework only says that a label cannot change.
var labelRemedies = map[string]string{
	queueNamePath.String(): "the queue of a running TrainJob cannot change; set spec.suspend to true in the same request, and it stops and queues there",
	priorityPath.String():  "a running TrainJob cannot get a priority class; set spec.suspend to true in the same request, and it stops and queues with it",
	maxExecPath.String():   "the time limit of a running TrainJob cannot change, nor in the request that stops it; create the TrainJob again with another",
}

// leaving says what to do where the label of the queue is taken off.
const leaving = "a running TrainJob cannot leave its queue, nor in the request that stops it; create it again without the label"

// withRemedies completes jobframework's refusals of changed labels.
func withRemedies(errs field.ErrorList, running bool) field.ErrorList {
	for _, err := range errs {
		added := err.Field == priorityPath.String() && err.BadValue != ""
		if remedy := labelRemedies[err.Field]; remedy != "" && running && (added || err.Detail == apivalidation.FieldImmutableErrorMsg) {
			err.Detail = remedy
			if err.Field == queueNamePath.String() && fmt.Sprint(err.BadValue) == "" {
				err.Detail = leaving
			}
		}
	}
	return errs
}

// keepsWorkload refuses to give a TrainJob that exists a prebuilt Workload, another or none:
// the one that it has would hold its quota for ever. jobframework allows it with a suspend.
func keepsWorkload(t, old *trainjob.TrainJob) field.ErrorList {
	before := jobframework.PrebuiltWorkloadNameFor(old)
	if jobframework.PrebuiltWorkloadNameFor(t) == before {
		return nil
	}
	path := jobframework.GetPrebuiltWorkloadPath(t)
	if before != "" {
		path = jobframework.GetPrebuiltWorkloadPath(old)
	}
	return field.ErrorList{field.Forbidden(path,
		"the Workload of a TrainJob that exists cannot change, nor in the request that stops it; put the label back, or create another TrainJob with it")}
}

// ofJobSets is how the names of the Workloads begin that Kueue makes of JobSets that are no TrainJob's. By that name
// in their annotation the policies tell Jobs of such JobSets from those of TrainJobs.
const ofJobSets = "jobset-"

// prebuiltOfTrainJob refuses a prebuilt Workload that has such a name to a TrainJob that comes into a queue. One that is there
// already has to be written still, to stop or to go.
func prebuiltOfTrainJob(t, old *trainjob.TrainJob) field.ErrorList {
	name := jobframework.PrebuiltWorkloadNameFor(t)
	known := old != nil && jobframework.QueueNameForObject(old) != "" && jobframework.PrebuiltWorkloadNameFor(old) == name
	if known || !strings.HasPrefix(name, ofJobSets) {
		return nil
	}
	return field.ErrorList{field.Invalid(jobframework.GetPrebuiltWorkloadPath(t), name,
		"names that begin with "+ofJobSets+" are those of JobSets' Workloads: create the Workload under another name")}
}
