// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"context"
	"encoding/json"
	"fmt"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/pkg/releases"
)

// Runtimes reads runtimes from files first. Use NewRuntimes.
type Runtimes struct {
	client.Reader

	schema      *releases.Schema
	clusterWide map[string]*trainer.ClusterTrainingRuntime
	namespaced  map[client.ObjectKey]*trainer.TrainingRuntime
}

// NewRuntimes takes the runtimes of files, with the defaults of a release's schema unless that is nil;
// of two with one name the last counts, and what names no namespace is in the one given. Those that no file has are read from elsewhere,
// which may be nil. Documents with an Err are left out; the error is of a runtime that is
// not one.
func NewRuntimes(schema *releases.Schema, files []File, namespace string, elsewhere client.Reader) (*Runtimes, error) {
	r := &Runtimes{
		Reader:      elsewhere,
		schema:      schema,
		clusterWide: map[string]*trainer.ClusterTrainingRuntime{},
		namespaced:  map[client.ObjectKey]*trainer.TrainingRuntime{},
	}
	for _, file := range files {
		for i := range file.Documents {
			if err := r.add(&file.Documents[i], namespace); err != nil {
				return nil, err
			}
		}
	}
	return r, nil
}

func (r *Runtimes) add(doc *Document, namespace string) error {
	if doc.Err != nil {
		return nil
	}
	group := trainer.GroupVersion.Group
	clusterWide, err := doc.Objects(group, trainer.ClusterTrainingRuntimeKind)
	if err != nil {
		return err
	}
	for i := range clusterWide {
		rt := &trainer.ClusterTrainingRuntime{}
		if err := r.decode(&clusterWide[i], rt, ""); err != nil {
			return err
		}
		r.clusterWide[rt.Name] = rt
	}
	namespaced, err := doc.Objects(group, trainer.TrainingRuntimeKind)
	if err != nil {
		return err
	}
	for i := range namespaced {
		rt := &trainer.TrainingRuntime{}
		if err := r.decode(&namespaced[i], rt, namespace); err != nil {
			return err
		}
		r.namespaced[client.ObjectKeyFromObject(rt)] = rt
	}
	return nil
}

// decode reads a runtime as it would be stored: plugins of Trainer's count on the defaults.
func (r *Runtimes) decode(object *Object, into client.Object, namespace string) error {
	stored := *object
	if r.schema != nil {
		stored.JSON = r.schema.Stored(object.JSON)
	}
	return stored.Into(into, namespace)
}

// Into decodes the object, which is in the namespace given if it names none. The error is
// an *Error.
func (o *Object) Into(into client.Object, namespace string) error {
	if err := json.Unmarshal(o.JSON, into); err != nil {
		return &Error{o.Document.Path, o.LineOf(""), fmt.Sprintf("reading %q: %v", o.Name(), err)}
	}
	if into.GetNamespace() == "" {
		into.SetNamespace(namespace)
	}
	return nil
}

// Get implements client.Reader.
func (r *Runtimes) Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	switch into := into.(type) {
	case *trainer.ClusterTrainingRuntime:
		if found, ok := r.clusterWide[key.Name]; ok {
			found.DeepCopyInto(into)
			return nil
		}
	case *trainer.TrainingRuntime:
		if found, ok := r.namespaced[key]; ok {
			found.DeepCopyInto(into)
			return nil
		}
	}
	if r.Reader == nil {
		return apierrors.NewNotFound(schema.GroupResource{}, key.String())
	}
	return r.Reader.Get(ctx, key, into, opts...)
}
