// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"runtime/debug"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/kubeflow/trainer/v2/pkg/constants"
	trainerruntime "github.com/kubeflow/trainer/v2/pkg/runtime"
	trainercore "github.com/kubeflow/trainer/v2/pkg/runtime/core"
	"github.com/kubeflow/trainer/v2/pkg/runtime/framework"
	trainerplugins "github.com/kubeflow/trainer/v2/pkg/runtime/framework/plugins"
	trainerjobset "github.com/kubeflow/trainer/v2/pkg/runtime/framework/plugins/jobset"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	jobsetapply "sigs.k8s.io/jobset/client-go/applyconfiguration/jobset/v1alpha2"
)

// Renderer turns a TrainJob and its runtime into the JobSet that Trainer makes of
// them, with Trainer's own library and without any request to an API server.
type Renderer struct {
	runtime trainerruntime.Runtime
	// builder makes the JobSet; companions make what Trainer creates beside it.
	builder    framework.ComponentBuilderPlugin
	companions []framework.ComponentBuilderPlugin
}

// ErrPluginPanics is of a TrainJob that a plugin of Trainer panics on: Trainer makes nothing of it
// and tells nobody but its log.
var ErrPluginPanics = errors.New("Trainer makes nothing of this TrainJob, because its plugin panics; set spec.trainer.numNodes, or use another runtime")

// ErrTooManyPods is of a TrainJob with more pods than maxPods.
var ErrTooManyPods = fmt.Errorf("a TrainJob may have %d: set spec.trainer.numNodes, or use another runtime", maxPods)

// maxPods is far beyond what anybody trains on. Plugins of Trainer write down the name of each pod: of two thousand million,
// which its CRD takes, they use up all memory that there is.
const maxPods = 100_000

// NewRenderer sets Trainer's library up. Trainer keeps its runtime in a package
// variable, so a process should make one Renderer only.
func NewRenderer(ctx context.Context, scheme *runtime.Scheme) (*Renderer, error) {
	offline := &offlineClient{scheme: scheme}
	rt, err := trainercore.NewTrainingRuntime(ctx, offline, noIndex{}, nil)
	if err != nil {
		return nil, fmt.Errorf("setting up Trainer's runtime library: %w", err)
	}
	r := &Renderer{runtime: rt}
	for name, newPlugin := range trainerplugins.NewRegistry() {
		plugin, err := newPlugin(ctx, offline, noIndex{}, nil)
		if err != nil {
			return nil, fmt.Errorf("setting up plugin %s of Trainer: %w", name, err)
		}
		builder, builds := plugin.(framework.ComponentBuilderPlugin)
		switch {
		case name == trainerjobset.Name:
			r.builder = builder
		case builds:
			r.companions = append(r.companions, builder)
		}
	}
	return r, nil
}

// Render returns the JobSet for job with the given patch entries in place of its own.
// Replicated jobs come in the runtime's order; replicas, parallelism and completions
// are always set. What the API server and JobSet default further is left unset.
func (r *Renderer) Render(ctx context.Context, job *TrainJob, spec *trainer.TrainingRuntimeSpec, patches []RuntimePatch) (*jobsetapi.JobSet, error) {
	return r.render(ctx, job, spec, patches, func(*trainerruntime.Info, *trainer.TrainJob) {})
}

// Describe is Render without what Trainer's plugins add to containers: variables,
// ports, mounts and volumes that wire the nodes of a framework together. None of it
// counts for quota, Trainer adds it in random order, and Kueue's in-tree integration
// leaves it out of its PodSets: a Workload made from this one is the same job to it.
// It returns ErrPluginPanics also where a plugin panics on what goes with the JobSet.
func (r *Renderer) Describe(ctx context.Context, job *TrainJob, spec *trainer.TrainingRuntimeSpec, patches []RuntimePatch) (*jobsetapi.JobSet, error) {
	return r.render(ctx, job, spec, patches, func(info *trainerruntime.Info, typed *trainer.TrainJob) {
		for _, companion := range r.companions {
			// Their errors are about an API server, which is not asked here.
			_, _ = companion.Build(ctx, info, typed)
		}
		for i := range info.TemplateSpec.PodSets {
			ps := &info.TemplateSpec.PodSets[i]
			ps.Containers, ps.InitContainers, ps.Volumes = nil, nil, nil
		}
	})
}

func (r *Renderer) render(ctx context.Context, job *TrainJob, spec *trainer.TrainingRuntimeSpec, patches []RuntimePatch, prepare func(*trainerruntime.Info, *trainer.TrainJob)) (js *jobsetapi.JobSet, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			js, err = nil, panicked(reason)
		}
	}()
	typed, err := job.typed(patches)
	if err != nil {
		return nil, err
	}
	// Trainer's plugins write into what they are given: policies, torchtune's command.
	typed, spec = typed.DeepCopy(), spec.DeepCopy()
	info, err := r.runtime.RuntimeInfo(typed, spec.Template, spec.MLPolicy, spec.PodGroupPolicy)
	if err != nil {
		return nil, fmt.Errorf("rendering the runtime: %w", err)
	}
	if pods := podsOf(info, spec); pods > maxPods {
		return nil, fmt.Errorf("it has %d pods, and %w", pods, ErrTooManyPods)
	}
	prepare(info, typed)
	if err := r.builder.SyncParallelCount(info); err != nil {
		return nil, fmt.Errorf("rendering pod counts: %w", err)
	}
	objs, err := r.builder.Build(ctx, info, typed)
	if err != nil {
		return nil, fmt.Errorf("rendering the JobSet: %w", err)
	}
	for _, obj := range objs {
		if apply, ok := obj.(*jobsetapply.JobSetApplyConfiguration); ok {
			return toJobSet(apply)
		}
	}
	return nil, errors.New("no JobSet comes out of the runtime")
}

func podsOf(info *trainerruntime.Info, spec *trainer.TrainingRuntimeSpec) int64 {
	replicas := map[string]int32{}
	for _, rj := range spec.Template.Spec.ReplicatedJobs {
		replicas[rj.Name] = rj.Replicas
	}
	pods := int64(0)
	for _, ps := range info.TemplateSpec.PodSets {
		pods += int64(max(1, replicas[ps.Name])) * int64(max(0, ptr.Deref(ps.Count, 1)))
	}
	return pods
}

var pluginFrame = regexp.MustCompile(`/pkg/runtime/framework/plugins/(\w+)\.`)

// panicked returns ErrPluginPanics with the reason, and with the plugin of Trainer that is on the stack.
func panicked(reason any) error {
	plugin := "unknown"
	if frame := pluginFrame.FindSubmatch(debug.Stack()); frame != nil {
		plugin = string(frame[1])
	}
	return fmt.Errorf("plugin %s: %v: %w", plugin, reason, ErrPluginPanics)
}

func toJobSet(apply *jobsetapply.JobSetApplyConfiguration) (*jobsetapi.JobSet, error) {
	data, err := json.Marshal(apply)
	if err != nil {
		return nil, err
	}
	js := &jobsetapi.JobSet{}
	if err := json.Unmarshal(data, js); err != nil {
		return nil, err
	}
	for i := range js.Spec.ReplicatedJobs {
		// JobSet's CRD and the Job API have these defaults, where Trainer leaves the counts to them.
		rj, replicas := &js.Spec.ReplicatedJobs[i], apply.Spec.ReplicatedJobs[i].Replicas
		rj.Replicas = ptr.Deref(replicas, 1)
		rj.Template.Spec.Parallelism = cmp.Or(rj.Template.Spec.Parallelism, ptr.To[int32](1))
	}
	return js, nil
}

// asksForResources tells whether a TrainJob sets resources of its own.
func asksForResources(job *TrainJob) bool {
	perNode := ptr.Deref(ptr.Deref(job.Spec.Trainer, trainer.Trainer{}).ResourcesPerNode, corev1.ResourceRequirements{})
	return perNode.Limits != nil || perNode.Requests != nil
}

// replaceResources returns the runtime that renders, with the library of Trainer 2.3, as
// spec does with an older Trainer: there resourcesPerNode takes the place of the
// resources of the container, all of them (func Trainer in
// pkg/runtime/framework/plugins/jobset/builder.go of 2.1 and 2.2). The library merges
// them per key, and what is merged with itself stays.
func replaceResources(spec *trainer.TrainingRuntimeSpec, job *TrainJob) *trainer.TrainingRuntimeSpec {
	perNode := job.Spec.Trainer.ResourcesPerNode
	spec = spec.DeepCopy()
	patchSteps(spec, job)
	for i := range spec.Template.Spec.ReplicatedJobs {
		rj := &spec.Template.Spec.ReplicatedJobs[i]
		if !RunsNodes(spec.MLPolicy, rj) {
			continue
		}
		containers := rj.Template.Spec.Template.Spec.Containers
		for j := range containers {
			if containers[j].Name == constants.Node {
				containers[j].Resources = corev1.ResourceRequirements{Limits: perNode.Limits.DeepCopy(), Requests: perNode.Requests.DeepCopy()}
			}
		}
	}
	return spec
}

// patchSteps merges the ancestor labels of the job's patches into the runtime, as Trainer 2.2 does before it looks for the
// replicated job that resourcesPerNode is for (mergeRuntimePatches in pkg/runtime/core there).
func patchSteps(spec *trainer.TrainingRuntimeSpec, job *TrainJob) {
	for _, p := range job.Spec.RuntimePatches {
		entry, _ := p.Decode() // Rendering tells of the error.
		for _, patched := range ReplicatedJobs(&entry) {
			labels := ptr.Deref(ptr.Deref(patched.Template, trainer.JobTemplatePatch{}).Metadata, metav1.ObjectMeta{}).Labels
			for i := range spec.Template.Spec.ReplicatedJobs {
				rj := &spec.Template.Spec.ReplicatedJobs[i]
				if step, ok := labels[constants.LabelTrainJobAncestor]; ok && rj.Name == patched.Name {
					metav1.SetMetaDataLabel(&rj.Template.ObjectMeta, constants.LabelTrainJobAncestor, step)
				}
			}
		}
	}
}

// RunsNodes reports whether a replicated job is one that resourcesPerNode is for: the
// trainer step, and the nodes of MPI when the launcher is one of them.
func RunsNodes(policy *trainer.MLPolicy, rj *jobsetapi.ReplicatedJob) bool {
	if rj.Template.Labels[constants.LabelTrainJobAncestor] == constants.AncestorTrainer {
		return true
	}
	return policy != nil && policy.MPI != nil && ptr.Deref(policy.MPI.RunLauncherAsNode, false) && rj.Name == constants.Node
}
