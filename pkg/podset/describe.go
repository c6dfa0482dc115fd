// SPDX-License-Identifier: Apache-2.0

package podset

import (
	"context"
	"errors"
	"fmt"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// Describe returns the PodSets of the effective TrainJob: its runtime with everybody's
// patches but our own, or ErrCannotRun. The API server adds defaults to those that it
// stores; see Defaults.
func Describe(ctx context.Context, renderer *trainjob.Renderer, job *trainjob.TrainJob, runtime *trainer.TrainingRuntimeSpec, field patch.Field) ([]kueue.PodSet, error) {
	others, err := field.Others(&job.Spec)
	if err != nil {
		return nil, err
	}
	js, err := renderer.Describe(ctx, job, runtime, others)
	if errors.Is(err, trainjob.ErrPluginPanics) || errors.Is(err, trainjob.ErrTooManyPods) {
		return nil, fmt.Errorf("%w: %w", ErrCannotRun, err)
	}
	if err != nil {
		return nil, err
	}
	if errs := runnable(job, runtime, js, field); len(errs) > 0 {
		return nil, fmt.Errorf("%w: %w", ErrCannotRun, errs.ToAggregate())
	}
	return fromJobSet(js)
}
