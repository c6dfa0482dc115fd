// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
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

// trainJobGroups are all that TrainJobs have had: the second is from before the first
// release of Trainer 2.
var trainJobGroups = []string{trainer.GroupVersion.Group, "kubeflow.org"}

// TrainJobs finds those of every group that they have had, as Objects does.
func (d *Document) TrainJobs() ([]Object, error) {
	return d.objects(trainJobGroups, trainer.TrainJobKind)
}

// Objects finds those of a kind in a group, in any version. The error is an
// *Error of a document that cannot be read as objects.
func (d *Document) Objects(group, kind string) ([]Object, error) {
	return d.objects([]string{group}, kind)
}

func (d *Document) objects(groups []string, kind string) ([]Object, error) {
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
