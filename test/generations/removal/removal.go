// SPDX-License-Identifier: Apache-2.0

// Package removal proves what package provenance says: with a source taken away, each
// field that it set becomes what it overrode.
package removal

import (
	"fmt"
	"slices"

	"github.com/kubeflow/trainer/v2/pkg/constants"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch/provenance"
)

// Removal is an input without one source.
type Removal struct {
	Source provenance.Source
	Input  provenance.Input
}

// All returns one removal for every source but Trainer itself.
func All(in provenance.Input) []Removal {
	all := []Removal{
		{provenance.Source{Kind: provenance.Runtime}, withoutRuntime(in)},
		{provenance.Source{Kind: provenance.TrainJob}, provenance.Input{Runtime: in.Runtime, Job: in.Job.DeepCopy()}},
	}
	all[1].Input.Job.Spec.Trainer, all[1].Input.Job.Spec.Initializer = nil, nil
	for i := range in.Job.Spec.PodTemplateOverrides {
		out := in
		out.Job = in.Job.DeepCopy()
		out.Job.Spec.PodTemplateOverrides = slices.Delete(out.Job.Spec.PodTemplateOverrides, i, i+1)
		all = append(all, Removal{provenance.Source{Kind: provenance.Patch, Index: i}, out})
	}
	for i, p := range in.Job.Spec.RuntimePatches {
		out := in
		out.Job = in.Job.DeepCopy()
		out.Job.Spec.RuntimePatches = slices.Delete(out.Job.Spec.RuntimePatches, i, i+1)
		all = append(all, Removal{provenance.Source{Kind: provenance.Patch, Index: i, Manager: p.Manager}, out})
	}
	return all
}

// withoutRuntime leaves the names of replicated jobs and containers and the labels of steps, which tell where things go.
func withoutRuntime(in provenance.Input) provenance.Input {
	in.Runtime = in.Runtime.DeepCopy()
	in.Runtime.Template.ObjectMeta.Labels, in.Runtime.Template.ObjectMeta.Annotations = nil, nil
	for i := range in.Runtime.Template.Spec.ReplicatedJobs {
		template := &in.Runtime.Template.Spec.ReplicatedJobs[i].Template
		bare := batchv1.JobTemplateSpec{}
		if step, ok := template.Labels[constants.LabelTrainJobAncestor]; ok {
			bare.Labels = map[string]string{constants.LabelTrainJobAncestor: step}
		}
		pod := template.Spec.Template.Spec
		bare.Spec.Template.Spec = corev1.PodSpec{InitContainers: names(pod.InitContainers), Containers: names(pod.Containers)}
		*template = bare
	}
	return in
}

func names(containers []corev1.Container) []corev1.Container {
	bare := make([]corev1.Container, 0, len(containers))
	for _, c := range containers {
		bare = append(bare, corev1.Container{Name: c.Name})
	}
	return bare
}

// Check compares the fields before and after a source was removed: how many that had set, and what is wrong with one.
func Check(before []provenance.Field, removed provenance.Source, after []provenance.Field) (checked int, err error) {
	type place struct{ job, path string }
	values := map[place]string{}
	for _, f := range after {
		values[place{f.Job, f.Path}] = string(f.Value)
	}
	for _, f := range before {
		if f.Source != removed || f.Path == "metadata.labels["+constants.LabelTrainJobAncestor+"]" {
			continue
		}
		checked++
		want := ""
		if len(f.Overrode) > 0 {
			want = string(f.Overrode[0].Value)
		}
		if f.Path == "spec.template.spec.serviceAccountName" && want == `""` {
			want = "" // A patch that says no service account takes the runtime's away.
		}
		if got := values[place{f.Job, f.Path}]; got != want {
			return checked, fmt.Errorf("%s sets %s of %q to %s, overriding %s; without it, it is %q instead of %q",
				removed, f.Path, f.Job, f.Value, f.Overrode, got, want)
		}
	}
	return checked, nil
}
