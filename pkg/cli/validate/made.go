// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/kubeflow/trainer/v2/pkg/constants"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/verdict"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// made checks what comes of a TrainJob that Trainer takes: its JobSet, Jobs and pods.
func (c *checker) made(ctx context.Context, job *trainjob.TrainJob, runtime *trainer.TrainingRuntimeSpec, patches []trainjob.RuntimePatch) field.ErrorList {
	js, err := c.renderer.Render(ctx, job, runtime, patches)
	if err != nil {
		return field.ErrorList{podset.Unrendered(job, err)}
	}
	errs := podset.Unmade(job, runtime, js)
	known := len(errs) > 0
	o := &origins{job: job, runtime: runtime, jobSet: js, tree: verdict.Tree(job), specTree: verdict.Tree(runtime)}
	for _, refusal := range verdict.Of(ctx, js) {
		if known && counted.MatchString(refusal.Path) {
			continue
		}
		refusal.Path = o.withKey(refusal)
		errs = append(errs, o.refuse(refusal))
	}
	return errs
}

// counted are fields of which package podset says more.
var counted = regexp.MustCompile(`\.resources\.|^spec\.(parallelism|completions)$`)

// origins finds the fields of a TrainJob, or of its runtime, that a field of its JobSet comes from.
type origins struct {
	job            *trainjob.TrainJob
	runtime        *trainer.TrainingRuntimeSpec
	jobSet         *jobsetapi.JobSet
	tree, specTree any // the TrainJob, specTree the runtime's spec
}

// refuse makes an error about the field that is to be changed. That is the last one to set all of the path; where nobody
// does, because something is missing, it is that of the runtime if it has as much of it as others.
func (o *origins) refuse(r verdict.Refusal) *field.Error {
	inRuntime := "template." + r.Path
	if r.ReplicatedJob != "" {
		inRuntime = "template.spec.replicatedJobs[" + r.ReplicatedJob + "].template." + r.Path
	}
	_, _, best, total := verdict.Follow(o.specTree, inRuntime)
	best -= total
	origin := ""
	for _, path := range o.candidates(r) {
		found, _, depth, total := verdict.Follow(o.tree, path)
		if missing := depth - total; missing > best || best == 0 && missing == 0 {
			origin, best = found, missing
		}
	}
	what := "the " + r.Kind
	if r.ReplicatedJob != "" {
		what += " of replicated job " + r.ReplicatedJob
	}
	fate := "would be refused for good"
	if r.Waits {
		fate = "would wait for ever"
	}
	detail := fmt.Sprintf("%s %s: %s: %s", what, fate, cmp.Or(r.Path, "it"), r.Message)
	if origin != "" {
		return field.Invalid(field.NewPath(origin), field.OmitValueType{}, detail)
	}
	return podset.InRuntime(o.job, detail)
}

// withKey is the path of a refusal with the key of a pod template's label or annotation, which Kubernetes does not name.
func (o *origins) withKey(r verdict.Refusal) string {
	at := slices.IndexFunc(o.jobSet.Spec.ReplicatedJobs, func(rj jobsetapi.ReplicatedJob) bool { return rj.Name == r.ReplicatedJob })
	if at < 0 {
		return r.Path
	}
	template := &o.jobSet.Spec.ReplicatedJobs[at].Template.Spec.Template
	values := map[string]map[string]string{"spec.template.labels": template.Labels, "spec.template.annotations": template.Annotations}[r.Path]
	refused := func(text string) bool { return strings.Contains(r.Message, "value: "+strconv.Quote(text)+":") }
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if refused(key) || refused(values[key]) {
			return strings.Replace(r.Path, "template.", "template.metadata.", 1) + "[" + key + "]"
		}
	}
	return r.Path
}

// candidates are the places in a TrainJob that may set a field, the strongest last.
func (o *origins) candidates(r verdict.Refusal) []string {
	if r.ReplicatedJob == "" {
		return nil
	}
	var all []string
	for i := range o.job.Spec.RuntimePatches {
		all = append(all, fmt.Sprintf("spec.runtimePatches[%d].trainingRuntimeSpec.template.spec.replicatedJobs[%s].template.%s", i, r.ReplicatedJob, r.Path))
	}
	if nodes := r.Path == "spec.parallelism" || r.Path == "spec.completions"; nodes && o.runsNodes(r.ReplicatedJob) {
		return append(all, "spec.trainer.numNodes")
	}
	inPod, ok := strings.CutPrefix(r.Path, "spec.template.")
	if !ok {
		return all
	}
	for i := range o.job.Spec.PodTemplateOverrides {
		target := fmt.Sprintf("spec.podTemplateOverrides[%d].targetJobs[%s]", i, r.ReplicatedJob)
		if _, _, depth, total := verdict.Follow(o.tree, target); depth == total {
			all = append(all, fmt.Sprintf("spec.podTemplateOverrides[%d].%s", i, inPod))
		}
	}
	return append(all, o.ownFields(r.ReplicatedJob, inPod)...)
}

// ownFields are those of the TrainJob's own API that Trainer puts into a container.
func (o *origins) ownFields(replicatedJob, inPod string) []string {
	for container, at := range map[string]string{
		constants.Node: "spec.trainer", constants.DatasetInitializer: "spec.initializer.dataset", constants.ModelInitializer: "spec.initializer.model",
	} {
		rest, ok := strings.CutPrefix(inPod, "spec.containers["+container+"].")
		if !ok || container == constants.Node && !o.runsNodes(replicatedJob) {
			continue
		}
		return []string{at + "." + strings.Replace(rest, "resources", "resourcesPerNode", 1)}
	}
	return nil
}

// runsNodes reports whether a replicated job is the one that spec.trainer is about.
func (o *origins) runsNodes(replicatedJob string) bool {
	return slices.ContainsFunc(o.jobSet.Spec.ReplicatedJobs, func(rj jobsetapi.ReplicatedJob) bool {
		return rj.Name == replicatedJob && trainjob.RunsNodes(o.runtime.MLPolicy, &rj)
	})
}

// remedies are for what Trainer's library only says is wrong.
var remedies = map[string]string{
	"spec.runtimeRef":  ": use a runtime that has it, or remove what asks for it",
	"spec.trainer.env": ": remove them, Trainer sets them",
}

// plugins asks those of the newest Trainer's library. What an older release may let pass is doubtful there.
func (c *checker) plugins(ctx context.Context, job *trainjob.TrainJob, procs *intstr.IntOrString, runtime *trainer.TrainingRuntimeSpec, patches []trainjob.RuntimePatch) (errs, doubts field.ErrorList) {
	policy := ptr.Deref(runtime.MLPolicy, trainer.MLPolicy{})
	if c.generation == trainjob.Trainer21 {
		errs = ofText(procs, policy)
	}
	for _, err := range c.validator.Create(ctx, job, runtime, patches) {
		switch {
		case strings.HasPrefix(err.Field, "spec.runtimePatches"):
			// The rules have said what there is to say of the patches, and where exactly.
			continue
		case strings.HasSuffix(err.Field, "priorityClassName"):
			// Volcano's plugin looks for a PriorityClass in a cluster.
			continue
		}
		// Whole objects in Go's notation help nobody.
		err.BadValue = field.OmitValueType{}
		err.Detail += remedies[err.Field]
		if c.refuses(err, procs, policy) {
			errs = append(errs, err)
			continue
		}
		err.Detail += "; Trainer " + newest.String() + " refuses it"
		doubts = append(doubts, err)
	}
	return errs, doubts
}

// ofText is about a text in numProcPerNode.
func ofText(procs *intstr.IntOrString, policy trainer.MLPolicy) field.ErrorList {
	if procs == nil || procs.Type == intstr.Int || policy.MPI == nil && (policy.Torch == nil || slices.Contains([]string{"auto", "cpu", "gpu"}, procs.StrVal)) {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("spec", "trainer", "numProcPerNode"), procs.StrVal,
		"Trainer 2.1 takes a number, without quotes, and auto, cpu or gpu for torch: set one, or leave the field out")}
}

// since23 is what no release before 2.3 looks at: mounts of initializers, and two rules for torchtune.
var since23 = regexp.MustCompile(`volumeMount|immutable config|LoRA fine-tuning is not supported`)

// refuses reports whether the checker's release, too, refuses what the newest one does. Before 2.3 Trainer looks at no
// variables of MPI's, and 2.1 at what torch is given only where numProcPerNode is set.
func (c *checker) refuses(err *field.Error, procs *intstr.IntOrString, policy trainer.MLPolicy) bool {
	if c.generation == newest {
		return true
	}
	if since23.MatchString(err.Detail) || policy.MPI != nil && err.Field == "spec.trainer.env" {
		return false
	}
	ofTorch := policy.Torch != nil && (err.Field == "spec.runtimeRef.name" || strings.HasPrefix(err.Field, "spec.trainer."))
	return c.generation != trainjob.Trainer21 || !ofTorch || procs != nil
}
