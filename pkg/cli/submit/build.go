// SPDX-License-Identifier: Apache-2.0

package submit

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/kubeflow/trainer/v2/pkg/constants"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"
	"sigs.k8s.io/yaml"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch/convert"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch/rules"
	"github.com/kueue-trainer/kueue-trainer/pkg/quantity"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

type request struct {
	name, namespace     string
	runtime             string // a name, or a kind and a name with a slash between them
	nodes               int32
	gpus                int64
	resource            string // what GPUs are asked for by
	image               string
	command, args       []string
	env                 []string
	queue, priority     string
	topology            string // required=LEVEL or preferred=LEVEL
	labels, annotations []string
	patch               string // a file with a runtime patch, or the patch itself
}

// trainJob makes the TrainJob, with runtimePatches. builtin is for a runtime with a trainer of its own; spec is nil if unseen.
func (r *request) trainJob(builtin bool, spec *trainer.TrainingRuntimeSpec) (*trainjob.TrainJob, error) {
	job := &trainjob.TrainJob{}
	job.APIVersion, job.Kind = trainjob.GVK.ToAPIVersionAndKind()
	job.Namespace, job.Name = r.namespace, r.name
	var err error
	if job.Spec.RuntimeRef, err = r.runtimeRef(); err != nil {
		return nil, err
	}
	if r.name == "" {
		job.GenerateName = job.Spec.RuntimeRef.Name + "-"
	}
	if job.Spec.Trainer, err = r.trainer(builtin); err != nil {
		return nil, err
	}
	if job.Labels, err = r.jobLabels(); err != nil {
		return nil, err
	}
	if job.Annotations, err = pairs("--annotation", r.annotations); err != nil {
		return nil, err
	}
	job.Spec.RuntimePatches, err = r.patches(spec)
	return job, err
}

func (r *request) runtimeRef() (trainer.RuntimeRef, error) {
	kind, name, found := strings.Cut(r.runtime, "/")
	if !found {
		kind, name = trainer.ClusterTrainingRuntimeKind, kind
	}
	ref := trainer.RuntimeRef{Name: name, APIGroup: ptr.To(trainer.GroupVersion.Group)}
	switch strings.ToLower(kind) {
	case "clustertrainingruntime":
		ref.Kind = ptr.To(trainer.ClusterTrainingRuntimeKind)
	case "trainingruntime":
		ref.Kind = ptr.To(trainer.TrainingRuntimeKind)
	default:
		return ref, fmt.Errorf("--runtime %s: the kind is clustertrainingruntime or trainingruntime", r.runtime)
	}
	return ref, nil
}

// trainer returns what the flags say of it, or nil.
func (r *request) trainer(builtin bool) (*trainer.Trainer, error) {
	t := &trainer.Trainer{Command: r.command, Args: r.args}
	if len(r.command)+len(r.args) > 0 && builtin && r.image == "" {
		return nil, fmt.Errorf("runtime %s brings a trainer with a command and arguments of its own: leave yours out, or name an --image that they are for", r.runtime)
	}
	if r.nodes < 0 || r.gpus < 0 {
		return nil, errors.New("--nodes and --gpus-per-node are 1 or more")
	}
	if r.nodes > 0 {
		t.NumNodes = &r.nodes
	}
	if r.image != "" {
		t.Image = &r.image
	}
	if r.gpus > 0 {
		amount := corev1.ResourceList{corev1.ResourceName(r.resource): *resource.NewQuantity(r.gpus, resource.DecimalSI)}
		// Both, whatever the runtime has: they must be equal.
		t.ResourcesPerNode = &corev1.ResourceRequirements{Limits: amount, Requests: amount}
	}
	for _, variable := range r.env {
		name, value, ok := strings.Cut(variable, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("--env %s: write NAME=VALUE", variable)
		}
		// The API server takes more, and no shell does.
		if wrong := validation.IsEnvVarName(name); len(wrong) > 0 {
			return nil, fmt.Errorf("--env %s: %q is no name of a variable: %s", variable, name, strings.Join(wrong, ", "))
		}
		t.Env = append(t.Env, corev1.EnvVar{Name: name, Value: value})
	}
	if equality.Semantic.DeepEqual(t, &trainer.Trainer{}) {
		return nil, nil
	}
	return t, nil
}

// jobLabels are those of --label, and those that queue and priority stand in.
func (r *request) jobLabels() (map[string]string, error) {
	labels, err := pairs("--label", r.labels)
	if err != nil {
		return nil, err
	}
	for _, l := range []struct{ flag, key, value string }{
		{"--queue", kueueconstants.QueueLabel, r.queue}, {"--priority", kueueconstants.WorkloadPriorityClassLabel, r.priority},
	} {
		if l.value == "" {
			continue
		}
		if old, ok := labels[l.key]; ok && old != l.value {
			return nil, fmt.Errorf("%s and --label %s name different ones: leave one of them out", l.flag, l.key)
		}
		labels[l.key] = l.value
	}
	return labels, nil
}

// pairs reads KEY=VALUE.
func pairs(flag string, values []string) (map[string]string, error) {
	read := map[string]string{}
	for _, pair := range values {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("%s %s: write KEY=VALUE", flag, pair)
		}
		read[key] = value
	}
	return read, nil
}

// patches returns the entry that --runtime-patch and --topology ask for, if they do.
func (r *request) patches(spec *trainer.TrainingRuntimeSpec) ([]trainjob.RuntimePatch, error) {
	entry, err := r.givenPatch()
	if err != nil {
		return nil, err
	}
	if err := r.addTopology(entry, spec); err != nil || len(entry) == 0 {
		return nil, err
	}
	entry["manager"] = convert.DefaultOwner
	return []trainjob.RuntimePatch{trainjob.NewRuntimePatch(entry)}, nil
}

// givenPatch reads --runtime-patch. What is wrong in it, the rules tell.
func (r *request) givenPatch() (map[string]any, error) {
	given := map[string]any{}
	if r.patch == "" {
		return given, nil
	}
	data := []byte(r.patch)
	if !strings.ContainsAny(r.patch, "{\n") && !strings.Contains(r.patch, "trainingRuntimeSpec:") {
		var err error
		if data, err = os.ReadFile(r.patch); err != nil {
			return nil, fmt.Errorf("--runtime-patch: %w", err)
		}
	}
	const what = "--runtime-patch is not what follows a manager in spec.runtimePatches, {trainingRuntimeSpec: {template: ...}}"
	if err := yaml.UnmarshalStrict(data, &given); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	if len(given) != 1 || given["trainingRuntimeSpec"] == nil {
		return nil, fmt.Errorf("%s: it has %s", what, strings.Join(slices.Sorted(maps.Keys(given)), ", "))
	}
	return given, nil
}

// addTopology asks for the topology in the pods of the nodes. Those of two replicated jobs are placed together.
func (r *request) addTopology(entry map[string]any, spec *trainer.TrainingRuntimeSpec) error {
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
	if !launcherIsNode(spec) {
		return annotate(entry, constants.Node, key, level)
	}
	// In a group Kueue takes the ranks of the larger PodSet to begin behind the smaller one, and JobSet has them begin at 0.
	return cmp.Or(annotate(entry, constants.Node, key, level), annotate(entry, constants.Node, kueue.PodSetGroupName, "nodes"),
		annotate(entry, constants.Node, kueue.PodIndexOffsetAnnotation, "-1"),
		annotate(entry, constants.Launcher, key, level), annotate(entry, constants.Launcher, kueue.PodSetGroupName, "nodes"))
}

// launcherIsNode reports whether the launcher of MPI trains beside replicated job node, which all runtimes have that Trainer ships.
func launcherIsNode(spec *trainer.TrainingRuntimeSpec) bool {
	return spec != nil && slices.ContainsFunc(spec.Template.Spec.ReplicatedJobs, func(rj jobsetapi.ReplicatedJob) bool {
		return rj.Name == constants.Launcher && trainjob.RunsNodes(spec.MLPolicy, &rj)
	})
}

// annotate puts an annotation on the pods of a replicated job.
func annotate(entry map[string]any, name, key, value string) error {
	list, annotation := []string{"trainingRuntimeSpec", "template", "spec", "replicatedJobs"}, []string{"template", "spec", "template", "metadata", "annotations", key}
	jobs, _, err := unstructured.NestedSlice(entry, list...)
	at := slices.IndexFunc(jobs, func(job any) bool {
		fields, _ := job.(map[string]any)
		return fields["name"] == name
	})
	if at < 0 {
		at, jobs = len(jobs), append(jobs, map[string]any{"name": name})
	}
	job := jobs[at].(map[string]any)
	if _, set, _ := unstructured.NestedFieldNoCopy(job, annotation...); set {
		return fmt.Errorf("--topology and --runtime-patch both set %s: leave one of them out", key)
	}
	if err := errors.Join(err, unstructured.SetNestedField(job, value, annotation...), unstructured.SetNestedSlice(entry, jobs, list...)); err != nil {
		return fmt.Errorf("--runtime-patch is not as in the API where --topology adds to it: %w", err)
	}
	return nil
}

// manifest returns the TrainJob as the generation has it, and notes what its rules doubt. What they refuse has an exit code.
func manifest(job *trainjob.TrainJob, generation trainjob.TrainerVersion, spec *trainer.TrainingRuntimeSpec, notes io.Writer) (*unstructured.Unstructured, error) {
	data, err := json.Marshal(job)
	if err != nil {
		return nil, err
	}
	if generation == trainjob.Trainer21 {
		older, _, errs := convert.ManifestToPodTemplateOverrides(data)
		if len(errs) > 0 {
			return nil, exit.With(exit.Findings, fmt.Errorf("for Trainer 2.1, which the cluster has: %w", errs.ToAggregate()))
		}
		data = older
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(data); err != nil {
		return nil, err
	}
	unstructured.RemoveNestedField(u.Object, "status")
	unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
	if data, err = u.MarshalJSON(); err != nil {
		return nil, err
	}
	if errs := slices.Concat(rules.Fields(generation, data), rules.Pods(generation, data), jobframework.ValidateQueueName(job)); len(errs) > 0 {
		return nil, exit.With(exit.Findings, errs.ToAggregate())
	}
	var made trainjob.TrainJob
	if err := json.Unmarshal(data, &made); err != nil {
		return nil, err
	}
	verdict := rules.Create(generation, spec, &made.Spec)
	for _, doubt := range verdict.Warnings {
		fmt.Fprintln(notes, "warning:", doubt)
	}
	if lost := replaced(job, spec); len(lost) > 0 && generation < trainjob.Trainer23 {
		fmt.Fprintf(notes, "warning: Trainer %s puts --gpus-per-node in the place of all resources of runtime %s, so that pods ask for no %s: "+
			"add them to spec.trainer.resourcesPerNode of what --dry-run=server -o yaml prints, and create that\n", generation, job.Spec.RuntimeRef.Name, strings.Join(lost, ", "))
	}
	return u, exit.With(exit.Findings, append(verdict.Errors, verdict.Unmade...).ToAggregate())
}

// replaced are resources that the nodes of a runtime ask for, and a TrainJob with some of its own does not.
func replaced(job *trainjob.TrainJob, spec *trainer.TrainingRuntimeSpec) (names []string) {
	if spec == nil || job.Spec.Trainer == nil || job.Spec.Trainer.ResourcesPerNode == nil {
		return nil
	}
	nodes, own := &corev1.PodSpec{}, &corev1.PodSpec{Containers: []corev1.Container{{Resources: *job.Spec.Trainer.ResourcesPerNode}}}
	for _, rj := range spec.Template.Spec.ReplicatedJobs {
		for _, c := range rj.Template.Spec.Template.Spec.Containers {
			if c.Name == constants.Node && trainjob.RunsNodes(spec.MLPolicy, &rj) {
				nodes.Containers = append(nodes.Containers, c)
			}
		}
	}
	for _, name := range sets.List(quantity.Asked(nodes).Difference(quantity.Asked(own))) {
		names = append(names, string(name))
	}
	return names
}
