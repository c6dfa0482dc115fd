// SPDX-License-Identifier: Apache-2.0

// Package options has the options of the Python SDK (kubeflow.trainer.options) for those
// who submit TrainJobs without Python: the same names, the same refusals, and the same
// JSON in the TrainJob.
//
// The options are in options.go, those that patch pods in patches.go, the SDK's refusals in
// validate.go.
package options

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// Manager owns what RuntimePatch adds, as in the SDK.
const Manager = "trainer.kubeflow.org/kubeflow-sdk"

// Trainer is what a TrainJob was made for. Some options go with one only.
type Trainer string

const (
	// NoTrainer leaves everything to the runtime.
	NoTrainer Trainer = ""
	// CustomTrainer runs a function; its command is made from it.
	CustomTrainer Trainer = "CustomTrainer"
	// BuiltinTrainer runs what the runtime brings.
	BuiltinTrainer Trainer = "BuiltinTrainer"
	// CustomTrainerContainer runs an image.
	CustomTrainerContainer Trainer = "CustomTrainerContainer"
)

// Option changes a TrainJob before it is submitted. The error says why it does not fit.
type Option interface {
	Apply(job *trainjob.TrainJob, of Trainer) error
}

var (
	_ Option = Name("")
	_ Option = Labels(nil)
	_ Option = Annotations(nil)
	_ Option = TrainerCommand(nil)
	_ Option = TrainerArgs(nil)
	_ Option = RuntimePatch{}
)

// Name is the TrainJob's.
type Name string

// Apply sets the name.
func (n Name) Apply(job *trainjob.TrainJob, _ Trainer) error {
	job.Name = string(n)
	return nil
}

// Labels are those of the TrainJob itself.
type Labels map[string]string

// Apply sets all labels: of several options the last counts.
func (l Labels) Apply(job *trainjob.TrainJob, _ Trainer) error {
	job.Labels = maps.Clone(l)
	return nil
}

// Annotations are those of the TrainJob itself.
type Annotations map[string]string

// Apply sets all annotations: of several options the last counts.
func (a Annotations) Apply(job *trainjob.TrainJob, _ Trainer) error {
	job.Annotations = maps.Clone(a)
	return nil
}

// TrainerCommand is the command of the trainer's container.
type TrainerCommand []string

// Apply sets spec.trainer.command. It is for CustomTrainerContainer: the other trainers
// have a command. Unlike the SDK's it must not be empty: the SDK writes an empty list, by
// which Trainer clears the runtime's command, and the TrainJob's Go type leaves it out.
func (c TrainerCommand) Apply(job *trainjob.TrainJob, of Trainer) error {
	if err := fits("TrainerCommand", c, of); err != nil {
		return err
	}
	trainerOf(job).Command = slices.Clone(c)
	return nil
}

// TrainerArgs are the arguments of the trainer's container.
type TrainerArgs []string

// Apply sets spec.trainer.args. It is for CustomTrainerContainer: the other trainers
// have arguments. It must not be empty, as TrainerCommand.
func (a TrainerArgs) Apply(job *trainjob.TrainJob, of Trainer) error {
	if err := fits("TrainerArgs", a, of); err != nil {
		return err
	}
	trainerOf(job).Args = slices.Clone(a)
	return nil
}

func fits(option string, words []string, of Trainer) error {
	if of != NoTrainer && of != CustomTrainerContainer {
		return fmt.Errorf("%s does not go with %s, which has a command and arguments of its own: use %s, or remove the option",
			option, of, CustomTrainerContainer)
	}
	if len(words) == 0 {
		return fmt.Errorf("%s is an empty list, which does not get into a TrainJob, so the runtime's would run: "+
			"leave the option out if that is meant, or say what to run", option)
	}
	return nil
}

func trainerOf(job *trainjob.TrainJob) *trainer.Trainer {
	if job.Spec.Trainer == nil {
		job.Spec.Trainer = &trainer.Trainer{}
	}
	return job.Spec.Trainer
}

// RuntimePatch patches the runtime, in an entry of Manager.
type RuntimePatch struct {
	TrainingRuntimeSpec *TrainingRuntimeSpecPatch
}

// Apply adds the entry. A TrainJob can have one only: the SDK would add a second, which
// the API server refuses.
func (p RuntimePatch) Apply(job *trainjob.TrainJob, _ Trainer) error {
	if patch.FindManager(job.Spec.RuntimePatches, Manager) != nil {
		return fmt.Errorf("there is an entry of manager %q in spec.runtimePatches: put both patches into one RuntimePatch", Manager)
	}
	if err := p.TrainingRuntimeSpec.validate().ToAggregate(); err != nil {
		return err
	}
	data, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("encoding the runtime patch: %w", err)
	}
	var entry trainjob.RuntimePatch
	if err := entry.UnmarshalJSON(data); err != nil {
		return fmt.Errorf("encoding the runtime patch: %w", err)
	}
	job.Spec.RuntimePatches = append(job.Spec.RuntimePatches, entry)
	return nil
}

// MarshalJSON returns the entry of spec.runtimePatches.
func (p RuntimePatch) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		TrainingRuntimeSpec *TrainingRuntimeSpecPatch `json:"trainingRuntimeSpec,omitzero"`
		Manager             string                    `json:"manager"`
	}{p.TrainingRuntimeSpec, Manager})
}
