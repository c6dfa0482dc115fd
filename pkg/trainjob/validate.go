// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"context"
	"fmt"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/kubeflow/trainer/v2/pkg/runtime/framework/core"
	"github.com/kubeflow/trainer/v2/pkg/runtime/framework/plugins"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Validator asks the plugins of Trainer's library what its webhook would.
type Validator struct {
	renderer  *Renderer
	framework *core.Framework
}

// NewValidator sets Trainer's plugins up, for runtimes as the renderer reads them.
func NewValidator(ctx context.Context, scheme *runtime.Scheme, renderer *Renderer) (*Validator, error) {
	framework, err := core.New(ctx, newOfflineClient(scheme), plugins.NewRegistry(), noIndex{}, nil)
	if err != nil {
		return nil, fmt.Errorf("setting up Trainer's plugins: %w", err)
	}
	return &Validator{renderer: renderer, framework: framework}, nil
}

// Create returns what Trainer refuses a new TrainJob for that uses the runtime, with the
// given patch entries in place of its own.
func (v *Validator) Create(ctx context.Context, job *TrainJob, spec *trainer.TrainingRuntimeSpec, patches []RuntimePatch) field.ErrorList {
	typed, err := job.Typed(patches)
	if err != nil {
		return field.ErrorList{field.Invalid(field.NewPath("spec", "runtimePatches"), field.OmitValueType{}, err.Error())}
	}
	// Trainer's plugins write into what they are given.
	forPlugins, spec := typed.DeepCopy(), spec.DeepCopy()
	info, err := v.renderer.runtime.RuntimeInfo(forPlugins, spec.Template, spec.MLPolicy, spec.PodGroupPolicy)
	if err != nil {
		return field.ErrorList{field.Invalid(field.NewPath("spec", "runtimeRef"), job.Spec.RuntimeRef.Name, err.Error())}
	}
	_, errs := v.framework.RunCustomValidationPlugins(ctx, info, nil, typed)
	return errs
}
