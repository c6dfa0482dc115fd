// SPDX-License-Identifier: Apache-2.0

package submit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kubeflow/trainer/v2/pkg/constants"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/options"
)

// addTopology asks for the topology in the pods of the trainer's replicated job, which is
// node in every runtime that Trainer ships.
func (r *request) addTopology(patch *options.RuntimePatch) error {
	if r.topology == "" {
		return nil
	}
	kind, level, _ := strings.Cut(r.topology, "=")
	key, ok := map[string]string{
		"required": kueue.PodSetRequiredTopologyAnnotation, "preferred": kueue.PodSetPreferredTopologyAnnotation,
	}[kind]
	if !ok || level == "" {
		return fmt.Errorf("--topology %s: write required=LEVEL or preferred=LEVEL, such as required=cloud.provider.com/rack", r.topology)
	}
	pod := podOf(patch, constants.Node)
	annotations, ok := pod.Metadata["annotations"].(map[string]any)
	switch {
	case !ok && pod.Metadata["annotations"] != nil:
		return fmt.Errorf("--runtime-patch: the annotations of the pods of %s must be an object", constants.Node)
	case annotations == nil:
		annotations = map[string]any{}
	}
	if _, ok := annotations[key]; ok {
		return fmt.Errorf("--topology and --runtime-patch both set %s: leave one of them out", key)
	}
	annotations[key] = level
	if pod.Metadata == nil {
		pod.Metadata = map[string]any{}
	}
	pod.Metadata["annotations"] = annotations
	return nil
}

// podOf returns the patch of the pods of a replicated job, which it adds where there is none.
func podOf(patch *options.RuntimePatch, job string) *options.PodTemplatePatch {
	jobs := &has(&has(&has(&patch.TrainingRuntimeSpec).Template).Spec).ReplicatedJobs
	at := slices.IndexFunc(*jobs, func(j options.ReplicatedJobPatch) bool { return j.Name == job })
	if at < 0 {
		at = len(*jobs)
		*jobs = append(*jobs, options.ReplicatedJobPatch{Name: job})
	}
	return has(&has(&has(&(*jobs)[at].Template).Spec).Template)
}

// has makes what a pointer leads to if there is nothing yet.
func has[T any](pointer **T) *T {
	if *pointer == nil {
		*pointer = new(T)
	}
	return *pointer
}
