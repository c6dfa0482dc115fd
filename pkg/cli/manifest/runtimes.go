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

	// found are those of files; the cluster's have a key without a namespace.
	found map[client.ObjectKey]*trainer.TrainingRuntime
}

// NewRuntimes takes the runtimes of files, with the defaults of a release's schema unless that is nil:
// plugins of Trainer's count on them. Of two with one name the last counts, and what names no
// namespace is in the one given. Those that no file has are read from elsewhere, which may be nil.
// Documents with an Err are left out; the errors are of others that cannot be read, and of runtimes
// that are none.
func NewRuntimes(schema *releases.Schema, files []File, namespace string, elsewhere client.Reader) (r *Runtimes, errs []error) {
	r = &Runtimes{Reader: elsewhere, found: map[client.ObjectKey]*trainer.TrainingRuntime{}}
	for _, file := range files {
		for i := range file.Documents {
			if err := r.add(schema, &file.Documents[i], namespace); err != nil && file.Documents[i].Err == nil {
				errs = append(errs, err)
			}
		}
	}
	return r, errs
}

func (r *Runtimes) add(schema *releases.Schema, doc *Document, namespace string) error {
	for _, kind := range []string{trainer.ClusterTrainingRuntimeKind, trainer.TrainingRuntimeKind} {
		objects, err := doc.Objects(trainer.GroupVersion.Group, kind)
		if err != nil {
			return err
		}
		for _, object := range objects {
			if schema != nil {
				object.JSON = schema.Stored(object.JSON)
			}
			rt := &trainer.TrainingRuntime{}
			if err := object.Into(rt, namespace); err != nil {
				return err
			}
			if kind == trainer.ClusterTrainingRuntimeKind {
				rt.Namespace = ""
			}
			r.found[client.ObjectKeyFromObject(rt)] = rt
		}
	}
	return nil
}

// Has reports whether a file has the runtime.
func (r *Runtimes) Has(key client.ObjectKey) bool { return r.found[key] != nil }

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
	found, ok := r.found[key]
	switch into := into.(type) {
	case *trainer.ClusterTrainingRuntime:
		if ok {
			*into = trainer.ClusterTrainingRuntime(*found.DeepCopy())
			return nil
		}
	case *trainer.TrainingRuntime:
		if ok {
			found.DeepCopyInto(into)
			return nil
		}
	}
	if r.Reader == nil {
		return apierrors.NewNotFound(schema.GroupResource{}, key.String())
	}
	return r.Reader.Get(ctx, key, into, opts...)
}
