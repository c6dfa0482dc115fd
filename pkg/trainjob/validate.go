// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"context"
	"errors"
	"fmt"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	trainerruntime "github.com/kubeflow/trainer/v2/pkg/runtime"
	trainercore "github.com/kubeflow/trainer/v2/pkg/runtime/core"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// offlineClient is what Trainer's library gets to render with: an API server that
// holds nothing and takes nothing. The JobSet builder asks for the existing JobSet
// to decide whether to write; for us there is none.
type offlineClient struct {
	client.Client
	scheme *runtime.Scheme
}

func (c *offlineClient) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewNotFound(schema.GroupResource{}, key.String())
}

func (c *offlineClient) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("rendering must not use the API server")
}

func (c *offlineClient) Scheme() *runtime.Scheme { return c.scheme }

func (c *offlineClient) RESTMapper() meta.RESTMapper { return meta.NewDefaultRESTMapper(nil) }

// noIndex takes the field indexes that Trainer's library wants and that rendering never uses.
type noIndex struct{}

func (noIndex) IndexField(context.Context, client.Object, string, client.IndexerFunc) error {
	return nil
}

// Validator asks the plugins of Trainer's library what its webhook would. It is not for several goroutines at a time.
type Validator struct {
	runtime trainerruntime.Runtime
	client  *runtimeClient
}

// NewValidator sets Trainer's library up.
func NewValidator(ctx context.Context, scheme *runtime.Scheme) (*Validator, error) {
	c := &runtimeClient{offlineClient: offlineClient{scheme: scheme}}
	rt, err := trainercore.NewTrainingRuntime(ctx, c, noIndex{}, nil)
	if err != nil {
		return nil, fmt.Errorf("setting up Trainer's runtime library: %w", err)
	}
	return &Validator{runtime: rt, client: c}, nil
}

// Create returns what Trainer refuses a new TrainJob for that uses the runtime, with the
// given patch entries in place of its own.
func (v *Validator) Create(ctx context.Context, job *TrainJob, spec *trainer.TrainingRuntimeSpec, patches []RuntimePatch) (errs field.ErrorList) {
	defer func() {
		if reason := recover(); reason != nil {
			errs = field.ErrorList{field.Invalid(field.NewPath("spec", "runtimeRef"), job.Spec.RuntimeRef.Name, panicked(reason).Error())}
		}
	}()
	typed, err := job.typed(patches)
	if err != nil {
		return field.ErrorList{field.Invalid(field.NewPath("spec", "runtimePatches"), field.OmitValueType{}, err.Error())}
	}
	v.client.spec = spec
	_, errs = v.runtime.ValidateObjects(ctx, nil, typed.DeepCopy())
	return errs
}

// runtimeClient is an API server with one runtime, of any name.
type runtimeClient struct {
	offlineClient
	spec *trainer.TrainingRuntimeSpec
}

func (c *runtimeClient) Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	if rt, ok := into.(*trainer.TrainingRuntime); ok {
		c.spec.DeepCopyInto(&rt.Spec)
		return nil
	}
	return c.offlineClient.Get(ctx, key, into, opts...)
}
