// SPDX-License-Identifier: Apache-2.0

// Package manifests renders what the projects ship, from the module cache, and changes no more than running outside of
// the cluster takes: who the permissions are given to and where the webhooks are called.
package manifests

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/attempt"
)

// Render writes a small overlay, whose resources lie below root, into dir and builds it. It is a file because kustomize
// has no other way to combine bases, and it stays there for people to look at.
func Render(root string, overlay types.Kustomization, dir string) []*unstructured.Unstructured {
	attempt.Succeed(os.MkdirAll(dir, 0o755))
	overlay.Resources = seenFrom(dir, root, overlay.Resources)
	attempt.Succeed(os.WriteFile(filepath.Join(dir, "kustomization.yaml"), attempt.Must(yaml.Marshal(overlay)), 0o644))
	options := krusty.MakeDefaultOptions()
	// Single files lie outside of the overlay's directory.
	options.LoadRestrictions = types.LoadRestrictionsNone
	built, err := krusty.MakeKustomizer(options).Run(filesys.MakeFsOnDisk(), dir)
	attempt.Succeed(err, "failed to render %s in %s", overlay.Resources, dir)
	return Decode(attempt.Must(built.AsYaml()))
}

// seenFrom names resources relative to dir, since kustomize refuses absolute directories. It compares real paths, so
// symbolic links are resolved first.
func seenFrom(dir, root string, resources []string) (relative []string) {
	dir = attempt.Must(filepath.EvalSymlinks(dir))
	for _, resource := range resources {
		path, err := filepath.EvalSymlinks(filepath.Join(root, resource))
		attempt.Succeed(err, "manifests are missing")
		relative = append(relative, attempt.Must(filepath.Rel(dir, path)))
	}
	return relative
}

// Decode splits a stream of YAML documents into objects.
func Decode(stream []byte) (objects []*unstructured.Unstructured) {
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(stream), 4096)
	for {
		obj := &unstructured.Unstructured{}
		err := decoder.Decode(&obj.Object)
		if errors.Is(err, io.EOF) {
			return objects
		}
		attempt.Succeed(err, "failed to decode manifest %d", len(objects)+1)
		if len(obj.Object) > 0 {
			objects = append(objects, obj)
		}
	}
}

// Partition separates the objects of some kinds from the others.
func Partition(objects []*unstructured.Unstructured, kinds ...string) (those, others []*unstructured.Unstructured) {
	for _, obj := range objects {
		if slices.Contains(kinds, obj.GetKind()) {
			those = append(those, obj)
		} else {
			others = append(others, obj)
		}
	}
	return those, others
}
