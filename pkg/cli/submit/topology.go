// SPDX-License-Identifier: Apache-2.0

package submit

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kubeflow/trainer/v2/pkg/constants"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// addTopology asks for the topology in the pods of the trainer's replicated job, which is
// node in every runtime that Trainer ships.
func (r *request) addTopology(entry map[string]any) error {
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
	list, annotation := []string{"trainingRuntimeSpec", "template", "spec", "replicatedJobs"}, []string{"template", "spec", "template", "metadata", "annotations", key}
	jobs, _, err := unstructured.NestedSlice(entry, list...)
	at := slices.IndexFunc(jobs, func(job any) bool {
		fields, _ := job.(map[string]any)
		return fields["name"] == constants.Node
	})
	if at < 0 {
		at, jobs = len(jobs), append(jobs, map[string]any{"name": constants.Node})
	}
	job := jobs[at].(map[string]any)
	if _, set, _ := unstructured.NestedFieldNoCopy(job, annotation...); set {
		return fmt.Errorf("--topology and --runtime-patch both set %s: leave one of them out", key)
	}
	if err := errors.Join(err, unstructured.SetNestedField(job, level, annotation...), unstructured.SetNestedSlice(entry, jobs, list...)); err != nil {
		return fmt.Errorf("--runtime-patch is not as in the API where --topology adds to it: %w", err)
	}
	return nil
}
