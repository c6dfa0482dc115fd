// SPDX-License-Identifier: Apache-2.0

package podset

import (
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/utils/ptr"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

// Due returns the replicated jobs whose turn has come: JobSet makes and resumes the child
// Jobs of the others later.
func Due(js *jobsetapi.JobSet, statuses []trainer.JobStatus) []jobsetapi.ReplicatedJob {
	byName := index(statuses)
	replicas := map[string]int32{}
	inOrder := js.Spec.StartupPolicy != nil && js.Spec.StartupPolicy.StartupPolicyOrder == jobsetapi.InOrder
	var due []jobsetapi.ReplicatedJob
	for i := range js.Spec.ReplicatedJobs {
		rj := &js.Spec.ReplicatedJobs[i]
		replicas[rj.Name] = rj.Replicas
		if !dependenciesMet(rj, replicas, byName) {
			continue
		}
		due = append(due, *rj)
		status := byName[rj.Name]
		if inOrder && ptr.Deref(status.Ready, 0)+ptr.Deref(status.Succeeded, 0)+ptr.Deref(status.Failed, 0) < rj.Replicas {
			return due
		}
	}
	return due
}
