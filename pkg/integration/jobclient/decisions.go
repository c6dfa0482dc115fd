// SPDX-License-Identifier: Apache-2.0

package jobclient

import (
	"strings"

	"gomodules.xyz/jsonpatch/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"
)

// Labels and annotations of a TrainJob that decide which Workload is its own, and what that
// says.
var (
	decidingLabels = []string{
		kueueconstants.QueueLabel, kueueconstants.PrebuiltWorkloadLabel,
		kueueconstants.MaxExecTimeSecondsLabel, kueueconstants.WorkloadPriorityClassLabel,
	}
	decidingAnnotations = []string{kueueconstants.PrebuiltWorkloadAnnotation}
)

// decisionTests test them in a JSON patch, as they are known.
func decisionTests(known *metav1.ObjectMeta) []jsonpatch.JsonPatchOperation {
	return append(membersTests("/metadata/labels", known.Labels, decidingLabels),
		membersTests("/metadata/annotations", known.Annotations, decidingAnnotations)...)
}

// membersTests test members of a map. To the API server a member that is missing equals a
// test without a value, but one of a map that is missing as a whole equals nothing.
func membersTests(path string, have map[string]string, keys []string) []jsonpatch.JsonPatchOperation {
	if len(have) == 0 {
		return []jsonpatch.JsonPatchOperation{jsonpatch.NewOperation("test", path, nil)}
	}
	var tests []jsonpatch.JsonPatchOperation
	for _, key := range keys {
		var value any
		if text, ok := have[key]; ok {
			value = text
		}
		tests = append(tests, jsonpatch.NewOperation("test", path+"/"+strings.ReplaceAll(key, "/", "~1"), value))
	}
	return tests
}

// decidedAlike reports whether the tests made of one object hold for another.
func decidedAlike(live, known *metav1.ObjectMeta) bool {
	return membersAlike(live.Labels, known.Labels, decidingLabels) &&
		membersAlike(live.Annotations, known.Annotations, decidingAnnotations)
}

func membersAlike(live, known map[string]string, keys []string) bool {
	if (len(live) == 0) != (len(known) == 0) {
		return false
	}
	for _, key := range keys {
		a, inLive := live[key]
		b, inKnown := known[key]
		if a != b || inLive != inKnown {
			return false
		}
	}
	return true
}
