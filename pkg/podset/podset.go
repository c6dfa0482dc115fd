// SPDX-License-Identifier: Apache-2.0

// Package podset maps TrainJobs to Kueue's PodSets and admissions back to
// placements. Its functions are pure; what they need is given to them.
//
// From TrainJob to PodSets: describe.go, podset.go (a JobSet's replicated jobs), defaults.go (what
// the API server fills into a Workload), topology.go. From an admission to placements: place.go,
// tolerations.go, template.go (child Jobs and pods). Comparing the two: resources.go, selection.go,
// excess.go, prebuilt.go. What a job could never run with: validate.go, runnable.go, cache.go, names.go,
// blame.go (which field an amount comes from). What runs: due.go, status.go.
package podset

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/gpu"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
)

// maxPodSets is the number of PodSets that a Workload can hold (Workload CRD, spec.podSets).
const maxPodSets = 18

// fromJobSet returns one PodSet per replicated job of the JobSet that Trainer renders
// without our own entry, in its order: the pods that really come to be, with the GPU
// tolerations that their placement is going to have. Kueue has to see those while it
// picks a flavor: node taints of a flavor, and of the nodes below a topology, count
// against what a PodSet tolerates.
// It fails when a topology annotation cannot be read; the error names the replicated job.
func fromJobSet(js *jobsetapi.JobSet) ([]kueue.PodSet, error) {
	podSets := make([]kueue.PodSet, 0, len(js.Spec.ReplicatedJobs))
	for i := range js.Spec.ReplicatedJobs {
		ps, err := fromReplicatedJob(&js.Spec.ReplicatedJobs[i])
		if err != nil {
			return nil, err
		}
		podSets = append(podSets, ps)
	}
	return podSets, nil
}

func fromReplicatedJob(rj *jobsetapi.ReplicatedJob) (kueue.PodSet, error) {
	ps := kueue.PodSet{
		Name:     kueue.NewPodSetReference(rj.Name),
		Template: *rj.Template.Spec.Template.DeepCopy(),
		Count:    rj.Replicas * PodsPerReplica(rj),
	}
	pod := &ps.Template.Spec
	pod.Tolerations = union(pod.Tolerations, gpu.Tolerations(pod))
	if !kueuelib.TopologyAwareSchedulingEnabled() {
		return ps, nil
	}
	// Pods of a Job are ranked by completion index, Jobs of a replicated job by job
	// index: Kueue keeps neighbours in rank together.
	topology, err := jobframework.NewPodSetTopologyRequest(&ps.Template.ObjectMeta).
		PodIndexLabel(ptr.To(batchv1.JobCompletionIndexAnnotation)).
		SubGroup(ptr.To(jobsetapi.JobIndexKey), ptr.To(rj.Replicas)).
		Build()
	if err != nil {
		return ps, fmt.Errorf("topology annotations of replicated job %q: %w", rj.Name, err)
	}
	ps.TopologyRequest = topology
	return ps, nil
}

// PodsPerReplica is how many pods of one child Job run at a time: its parallelism,
// but never more than its completions (batch/v1 Job).
func PodsPerReplica(rj *jobsetapi.ReplicatedJob) int32 {
	parallelism := ptr.Deref(rj.Template.Spec.Parallelism, 1)
	return min(parallelism, ptr.Deref(rj.Template.Spec.Completions, parallelism))
}

// union appends the tolerations that are not there yet.
func union(have, more []corev1.Toleration) []corev1.Toleration {
	have = slices.Clone(have)
	for _, t := range more {
		if !slices.ContainsFunc(have, func(h corev1.Toleration) bool { return kueuelib.SameToleration(h, t) }) {
			have = append(have, t)
		}
	}
	return have
}
