// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/pkg/releases"
)

// Object is an object in a document: all of it, or an item of a list such as "kubectl get
// -o yaml" prints.
type Object struct {
	Document *Document
	// Steps lead from the document to the object: none, or items and a number.
	Steps []string
	// JSON is the object's content.
	JSON json.RawMessage
}

// TrainJobs finds those of every group that they have had, as Objects does: the second is from before
// the first release of Trainer 2.
func (d *Document) TrainJobs() ([]Object, error) {
	return d.Objects(trainer.TrainJobKind, trainer.GroupVersion.Group, "kubeflow.org")
}

// Objects finds those of a kind in some groups, in any version. The error is an
// *Error of a document that cannot be read as objects.
func (d *Document) Objects(kind string, groups ...string) ([]Object, error) {
	if d.Err != nil {
		return nil, d.Err
	}
	ofKind := func(doc *Document, kind string) bool {
		return slices.ContainsFunc(groups, func(group string) bool { return doc.Of(group, kind) })
	}
	isList := !strings.Contains(d.value("apiVersion"), "/") && d.value("kind") == "List" || ofKind(d, kind+"List")
	if !isList && !ofKind(d, kind) {
		return nil, nil
	}
	data, err := d.JSON()
	if err != nil {
		return nil, err
	}
	if !isList {
		return []Object{{Document: d, JSON: data}}, nil
	}
	var list struct{ Items []json.RawMessage }
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, &Error{Path: d.Path, Line: d.LineOf("items"), Text: "items: " + err.Error()}
	}
	items, _ := child(d.Node, "items")
	var found []Object
	for i, item := range list.Items {
		n := fmt.Sprint(i)
		node, _ := child(items, n)
		if node == nil {
			return nil, &Error{Path: d.Path, Line: d.Line, Text: "items: they come by a merge, or in another spelling: write items as a list"}
		}
		if ofKind(&Document{Node: node}, kind) {
			found = append(found, Object{Document: d, Steps: []string{"items", n}, JSON: item})
		}
	}
	return found, nil
}

// objectsOf are Objects of all documents of files that have no Err.
func objectsOf(files []File, group, kind string) (all []Object, err error) {
	for _, file := range files {
		for i := range file.Documents {
			if doc := &file.Documents[i]; doc.Err == nil {
				found, unread := doc.Objects(kind, group)
				all, err = append(all, found...), errors.Join(err, unread)
			}
		}
	}
	return all, err
}

// Collect decodes the objects of a kind in a group, in any version, out of files; those that name no namespace are in the one
// given. Documents with an Err are left out; the error is of others that cannot be read.
func Collect[T any, P interface {
	*T
	client.Object
}](files []File, group, kind, namespace string, into *[]T) error {
	objects, all := objectsOf(files, group, kind)
	for i := range objects {
		var object T
		if err := objects[i].into(P(&object), namespace); err != nil {
			all = errors.Join(all, err)
			continue
		}
		*into = append(*into, object)
	}
	return all
}

// into decodes the object, which is in the namespace given if it names none. The error is
// an *Error.
func (o *Object) into(object client.Object, namespace string) error {
	if err := json.Unmarshal(o.JSON, object); err != nil {
		return &Error{o.Document.Path, o.LineOf(""), fmt.Sprintf("reading %q: %v", o.Name(), err)}
	}
	if object.GetNamespace() == "" {
		object.SetNamespace(namespace)
	}
	return nil
}

// Field is the path of a field of the object in its document.
func (o *Object) Field(path string) string {
	if len(o.Steps) == 0 {
		return path
	}
	return strings.TrimSuffix(fmt.Sprintf("%s[%s].%s", o.Steps[0], o.Steps[1], path), ".")
}

// LineOf is the line in the file of a field of the object.
func (o *Object) LineOf(path string) int { return o.Document.LineOf(o.Field(path)) }

// Name is namespace and name, as far as the manifest tells.
func (o *Object) Name() string {
	var object struct {
		Metadata struct{ Namespace, Name, GenerateName string }
	}
	_ = json.Unmarshal(o.JSON, &object) // What cannot be read has no name.
	m := object.Metadata
	if m.Name == "" {
		m.Name = m.GenerateName
	}
	return strings.TrimPrefix(m.Namespace+"/"+m.Name, "/")
}

// Runtimes reads runtimes from files first. Use NewRuntimes.
type Runtimes struct {
	client.Reader

	// found are those of files; the cluster's have a key without a namespace.
	found map[client.ObjectKey]*trainer.TrainingRuntime
}

// NewRuntimes takes the runtimes of files, with the defaults of a release's schema unless that is nil:
// plugins of Trainer's count on them. Of two with one name the last counts, and what names no
// namespace is in the one given. Those that no file has are read from elsewhere, which may be nil.
// Documents with an Err are left out; the error is of others that cannot be read, and of runtimes
// that are none.
func NewRuntimes(schema *releases.Schema, files []File, namespace string, elsewhere client.Reader) (*Runtimes, error) {
	r := &Runtimes{Reader: elsewhere, found: map[client.ObjectKey]*trainer.TrainingRuntime{}}
	var all error
	for _, kind := range []string{trainer.ClusterTrainingRuntimeKind, trainer.TrainingRuntimeKind} {
		objects, err := objectsOf(files, trainer.GroupVersion.Group, kind)
		all = errors.Join(all, err)
		for _, object := range objects {
			if schema != nil {
				object.JSON = schema.Stored(object.JSON)
			}
			rt := &trainer.TrainingRuntime{}
			if err := object.into(rt, namespace); err != nil {
				all = errors.Join(all, err)
				continue
			}
			if kind == trainer.ClusterTrainingRuntimeKind {
				rt.Namespace = ""
			}
			r.found[client.ObjectKeyFromObject(rt)] = rt
		}
	}
	return r, all
}

// Has reports whether a file has the runtime.
func (r *Runtimes) Has(key client.ObjectKey) bool { return r.found[key] != nil }

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
