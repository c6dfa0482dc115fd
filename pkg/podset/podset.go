// SPDX-License-Identifier: Apache-2.0

// Package podset maps TrainJobs to Kueue's PodSets and admissions back to
// placements. Its functions are pure; what they need is given to them.
package podset

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	resourcehelpers "k8s.io/component-helpers/resource"
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

// defaultRequests sets the requests that a pod has none for as the API server does when it is created
// (pkg/apis/core/v1/defaults.go): limits for those of containers, what its containers request, or else its own limits, for
// those of the whole pod. Kueue looks for defaults of a LimitRange first, which a pod never gets where it has limits.
// Resources with a limit of zero go: for one, Kueue would ask a PodSet to tolerate the taints of the resource's flavor.
func defaultRequests(pod *corev1.PodSpec) {
	for _, containers := range [][]corev1.Container{pod.InitContainers, pod.Containers} {
		for i := range containers {
			requestLimits(&containers[i].Resources)
		}
	}
	if r := pod.Resources; r != nil {
		dropOvercommitted(r, resourcehelpers.AggregateContainerRequests(&corev1.Pod{Spec: *pod}, resourcehelpers.PodResourcesOptions{}))
		requestLimits(r)
	}
}

// dropOvercommitted drops the limits of a pod beside which its containers' requests are charged: Kueue adds these up itself,
// with what a LimitRange has the others request, as Kubernetes does since 1.37. Huge pages cannot be overcommitted.
func dropOvercommitted(r *corev1.ResourceRequirements, ofContainers corev1.ResourceList) {
	maps.DeleteFunc(r.Limits, func(name corev1.ResourceName, _ resource.Quantity) bool {
		_, own := r.Requests[name]
		_, asked := ofContainers[name]
		return asked && !own && !strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
	})
}

// requestLimits requests limits where a request is missing, and drops resources of which nothing may be used. A request of
// zero below a limit stays, or Kueue would take the limit for it.
func requestLimits(r *corev1.ResourceRequirements) {
	r.Requests = kueuelib.WithMissing(r.Requests, r.Limits)
	for name, limit := range r.Limits {
		if limit.IsZero() {
			delete(r.Limits, name)
			delete(r.Requests, name)
		}
	}
}

// WorkloadCRD is the CRD whose schema has the defaults of PodSets.
const WorkloadCRD = "workloads.kueue.x-k8s.io"

// Defaults does to PodSets what the API server does to those of a Workload it
// stores: it sets the defaults of the served schema and drops what the schema does
// not know. Kueue compares a job's PodSets with the stored ones field by field and
// takes any difference for a changed job.
type Defaults struct {
	podSet *structuralschema.Structural
}

// NewDefaults takes the schema of the given version out of the Workload CRD.
func NewDefaults(crd *apiextensionsv1.CustomResourceDefinition, version string) (*Defaults, error) {
	at := slices.IndexFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
		return v.Name == version && v.Served && v.Schema != nil && v.Schema.OpenAPIV3Schema != nil
	})
	if at < 0 {
		return nil, fmt.Errorf("CRD %s serves no version %s; this manager needs Kueue v0.19 or a later one that serves it", crd.Name, version)
	}
	items := crd.Spec.Versions[at].Schema.OpenAPIV3Schema.Properties["spec"].Properties["podSets"].Items
	if items == nil || items.Schema == nil {
		return nil, errors.New("the Workload CRD has no schema for spec.podSets")
	}
	var podSet apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(items.Schema, &podSet, nil); err != nil {
		return nil, err
	}
	structural, err := structuralschema.NewStructural(&podSet)
	if err != nil {
		return nil, fmt.Errorf("schema of spec.podSets in CRD %s: %w", crd.Name, err)
	}
	return &Defaults{podSet: structural}, nil
}

// Apply returns the PodSets as the API server would store and return them.
func (d *Defaults) Apply(podSets []kueue.PodSet) ([]kueue.PodSet, error) {
	out := make([]kueue.PodSet, len(podSets))
	for i := range podSets {
		if err := d.apply(&podSets[i], &out[i]); err != nil {
			return nil, fmt.Errorf("defaulting PodSet %q: %w", podSets[i].Name, err)
		}
	}
	return out, nil
}

// apply goes through JSON because that is what the API server defaults and prunes.
func (d *Defaults) apply(in, out *kueue.PodSet) error {
	data, err := json.Marshal(in)
	if err != nil {
		return err
	}
	var value map[string]any
	if err := json.Unmarshal(data, &value); err != nil {
		return err
	}
	defaulting.PruneNonNullableNullsWithoutDefaults(value, d.podSet)
	defaulting.Default(value, d.podSet)
	pruning.Prune(value, d.podSet, false)
	if data, err = json.Marshal(value); err != nil {
		return err
	}
	return json.Unmarshal(data, out)
}
