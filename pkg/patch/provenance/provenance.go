// SPDX-License-Identifier: Apache-2.0

// Package provenance tells who set a field of the JobSet that Trainer makes of a
// TrainJob, and what it would be otherwise.
//
// The order is that of Trainer's guides: the TrainJob's own API wins over later patches,
// those over earlier ones, and all of them over the runtime. What Trainer really
// rendered has the last word: a field that none of them said is Trainer's own.
//
// provenance.go explains a field, sources.go stacks what could have set it, and flatten.go walks
// the fields of a JobSet.
package provenance

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// Kind is what a source is.
type Kind string

const (
	// Runtime is the TrainingRuntime or ClusterTrainingRuntime.
	Runtime Kind = "runtime"
	// Patch is an entry of spec.runtimePatches, or of spec.podTemplateOverrides.
	Patch Kind = "patch"
	// TrainJob is spec.trainer, spec.initializer and, in Trainer 2.1, spec.labels and
	// spec.annotations.
	TrainJob Kind = "TrainJob"
	// Trainer is the controller with its plugins: numbers of pods, variables of a framework.
	Trainer Kind = "Trainer"
)

// Source is who can set a field.
type Source struct {
	Kind Kind
	// Index is the place of a Patch in its list.
	Index int
	// Manager owns a Patch; empty for overrides, which have no owner.
	Manager string
}

// String is how people call the source.
func (s Source) String() string {
	switch {
	case s.Kind != Patch:
		return string(s.Kind)
	case s.Manager != "":
		return s.Manager
	}
	return fmt.Sprintf("podTemplateOverrides[%d]", s.Index)
}

// Setting is a source and the value that it sets.
type Setting struct {
	Source
	// Value is JSON, encoded by Trainer's types.
	Value json.RawMessage
}

// Field is one value of the JobSet.
type Field struct {
	// Job is the replicated job; empty for the JobSet itself.
	Job string
	// Path goes on from the JobSet or from the template of the replicated job, with keys
	// of maps and keyed lists in brackets: spec.template.spec.nodeSelector[pool]. Items with
	// the same key are counted: ports[53] and ports[53#2]. A list that Kubernetes replaces
	// as a whole, such as tolerations, is one field.
	Path string
	// Setting is the effective one.
	Setting
	// Overrode are those that it took the place of, the strongest first.
	Overrode []Setting
}

// Input is what Trainer rendered the JobSet from.
type Input struct {
	// Runtime must be there: it is the weakest source of almost every field.
	Runtime *trainer.TrainingRuntimeSpec
	// Job must be there. It has the entries, or the overrides of Trainer 2.1.
	Job *trainjob.TrainJob
	// Labels and Annotations are those of a TrainJob of Trainer 2.1.
	Labels, Annotations map[string]string
}

// Explain returns a Field for each value of the JobSet's metadata (labels and annotations)
// and of its Job templates, sorted. The error is of patches that Trainer cannot have rendered from.
func Explain(in Input, js *jobsetapi.JobSet) ([]Field, error) {
	said, err := in.settings(js)
	if err != nil {
		return nil, err
	}
	rendered := ofJobSet(&js.ObjectMeta, &js.Spec)
	fields := make([]Field, 0, len(rendered))
	for at, value := range rendered {
		fields = append(fields, explain(at, value, said[at]))
	}
	slices.SortFunc(fields, func(a, b Field) int {
		return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Path, b.Path))
	})
	return fields, nil
}

// explain finds the strongest setting, the settings' last, that has the rendered value.
// Stronger ones did not come into effect.
func explain(at place, value json.RawMessage, settings []Setting) Field {
	f := Field{Job: at.job, Path: at.path, Setting: Setting{Source{Kind: Trainer}, value}}
	slices.Reverse(settings)
	effective := slices.IndexFunc(settings, func(s Setting) bool { return bytes.Equal(s.Value, value) })
	if effective >= 0 {
		f.Setting = settings[effective]
	}
	f.Overrode = settings[effective+1:]
	return f
}
