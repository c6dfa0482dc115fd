// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"context"
	"encoding/json"
	"fmt"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// world is the API server that Trainer sees: one runtime.
type world struct {
	client.Client
	scheme *runtime.Scheme
	mapper meta.RESTMapper

	runtime trainer.ClusterTrainingRuntime
}

func newWorld(scheme *runtime.Scheme) *world {
	return &world{scheme: scheme, mapper: meta.NewDefaultRESTMapper(nil)}
}

func (w *world) set(q Question) error {
	w.runtime = trainer.ClusterTrainingRuntime{}
	if err := json.Unmarshal(q.Runtime, &w.runtime.Spec); err != nil {
		return fmt.Errorf("decoding the runtime: %w", err)
	}
	return nil
}

func (w *world) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	if obj, ok := obj.(*trainer.ClusterTrainingRuntime); ok {
		w.runtime.DeepCopyInto(obj)
		return nil
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.String())
}

// Apply takes the runtime snapshot that Trainer 2.3 makes.
func (w *world) Apply(context.Context, runtime.ApplyConfiguration, ...client.ApplyOption) error {
	return nil
}

func (w *world) Scheme() *runtime.Scheme { return w.scheme }

func (w *world) RESTMapper() meta.RESTMapper { return w.mapper }

// noIndex takes the field indexes that Trainer's library wants and that answers never use.
type noIndex struct{}

func (noIndex) IndexField(context.Context, client.Object, string, client.IndexerFunc) error {
	return nil
}
