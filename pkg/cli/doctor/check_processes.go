// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// processesByName are, by namespace, the TrainJobs whose numProcPerNode is a text. Trainer 2.1 takes one, and the API server
// goes on giving it out when the CRD has a number.
func processesByName(jobs []unstructured.Unstructured) map[string][]string {
	names := map[string][]string{}
	for i := range jobs {
		value, _, _ := unstructured.NestedFieldNoCopy(jobs[i].Object, "spec", "trainer", "numProcPerNode")
		if _, isText := value.(string); isText {
			names[jobs[i].GetNamespace()] = append(names[jobs[i].GetNamespace()], jobs[i].GetName())
		}
	}
	return names
}

// unreadableTrainJobs finds TrainJobs for which Trainer's types since 2.2 cannot decode a list.
func unreadableTrainJobs(f *Facts, found func(hit)) {
	for _, namespace := range slices.Sorted(maps.Keys(f.ProcessesByName)) {
		h := about("Namespace", "", namespace, "trainjobs", few(f.ProcessesByName[namespace]))
		if f.generation() >= trainjob.Trainer22 {
			h = h.as("ProcessesByName", Error)
			h.Effect = "Trainer can read no list of TrainJobs: none of the whole cluster starts, stops or ends."
		}
		found(h)
	}
}
