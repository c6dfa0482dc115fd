// SPDX-License-Identifier: Apache-2.0

// Package podset maps TrainJobs to Kueue's PodSets and admissions back to
// placements. Its functions are pure; what they need is given to them.
//
// From TrainJob to PodSets: podset.go, defaults.go (what the API server fills into a Workload). From an
// admission to placements: place.go, template.go (child Jobs and pods). Comparing the two: compare.go,
// excess.go. What a job could never run with: validate.go, runnable.go, names.go, blame.go (which field an
// amount or an address comes from). What runs: status.go.
package podset

import (
	"context"
	"errors"
	"fmt"
	"slices"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/gpu"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
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
	defaultRequests(pod)
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

// PodsPerReplica is how many pods of one child Job run at a time.
func PodsPerReplica(rj *jobsetapi.ReplicatedJob) int32 { return PodsOfJob(&rj.Template.Spec) }

// PodsOfJob is a Job's parallelism, but never more than its completions (batch/v1 Job).
func PodsOfJob(spec *batchv1.JobSpec) int32 {
	parallelism := ptr.Deref(spec.Parallelism, 1)
	return min(parallelism, ptr.Deref(spec.Completions, parallelism))
}

// union appends the tolerations that are not there yet.
func union(have, more []corev1.Toleration) []corev1.Toleration {
	have = slices.Clone(have)
	for _, t := range more {
		if !has(have, t) {
			have = append(have, t)
		}
	}
	return have
}

// Describe returns the PodSets of the effective TrainJob: its runtime with everybody's
// patches but our own, or ErrCannotRun. The API server adds defaults to those that it
// stores; see Defaults.
func Describe(ctx context.Context, renderer *trainjob.Renderer, job *trainjob.TrainJob, runtime *trainer.TrainingRuntimeSpec, patches patch.Field) ([]kueue.PodSet, error) {
	js, errs, err := effective(ctx, renderer, job, runtime, patches)
	if errors.Is(err, trainjob.ErrPluginPanics) || errors.Is(err, trainjob.ErrTooManyPods) {
		return nil, fmt.Errorf("%w: %w", ErrCannotRun, err)
	}
	if err != nil {
		return nil, err
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("%w: %w", ErrCannotRun, errs.ToAggregate())
	}
	return fromJobSet(js)
}

// effective returns the JobSet of the effective TrainJob, and what keeps its pods from ever running.
func effective(ctx context.Context, renderer *trainjob.Renderer, job *trainjob.TrainJob, runtime *trainer.TrainingRuntimeSpec, patches patch.Field) (*jobsetapi.JobSet, field.ErrorList, error) {
	if errs := append(patches.Full(&job.Spec), patches.UnknownJobs(&job.Spec, NamesOf(runtime.Template.Spec.ReplicatedJobs))...); len(errs) > 0 {
		return nil, errs, nil
	}
	others, err := patches.Others(&job.Spec)
	if err != nil {
		return nil, nil, err
	}
	js, err := renderer.Describe(ctx, job, runtime, others)
	if err != nil {
		return nil, nil, err
	}
	return js, runnable(job, runtime, js, patches), nil
}

// NamesOf returns the names of replicated jobs.
func NamesOf(replicatedJobs []jobsetapi.ReplicatedJob) []string {
	return kueuelib.Map(replicatedJobs, func(rj *jobsetapi.ReplicatedJob) string { return rj.Name })
}
