// SPDX-License-Identifier: Apache-2.0

package podset

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
)

// topologyRemedy is added to Kueue's own messages, which cannot know where the
// annotations of a TrainJob's pods come from.
func topologyRemedy(patches *field.Path) string {
	return fmt.Sprintf("; change the pod annotations of this replicated job in %s or in the runtime", patches)
}

// validateTopology checks the topology annotations of every replicated job by Kueue's
// rules. podSets may be shorter than jobs when they could not all be made. Users may have
// put them into the field patches.
func validateTopology(jobs []jobsetapi.ReplicatedJob, podSets []kueue.PodSet, patches *field.Path) field.ErrorList {
	if !kueuelib.TopologyAwareSchedulingEnabled() {
		return nil
	}
	var errs field.ErrorList
	annotations := map[kueue.PodSetReference]*field.Path{}
	for i := range jobs {
		path := field.NewPath("replicatedJobs").Key(jobs[i].Name)
		meta := &jobs[i].Template.Spec.Template.ObjectMeta
		annotations[kueue.NewPodSetReference(jobs[i].Name)] = path.Child("metadata", "annotations")
		errs = append(errs, jobframework.ValidateTASPodSetRequest(path, meta)...)
		if i < len(podSets) {
			errs = append(errs, jobframework.ValidateSliceSizeAnnotationUpperBound(path, meta, &podSets[i])...)
		}
	}
	if len(errs) == 0 && len(podSets) == len(jobs) {
		errs = jobframework.ValidatePodSetGroupingTopology(podSets, annotations)
	}
	for _, err := range errs {
		err.Detail += topologyRemedy(patches)
	}
	return errs
}
