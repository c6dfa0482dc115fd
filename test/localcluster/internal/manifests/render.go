// SPDX-License-Identifier: Apache-2.0

// Package manifests renders what the projects ship, from the module cache, and changes no more than running outside of
// the cluster takes: who the permissions are given to and where the webhooks are called.
package manifests

import (
	"bytes"
	"errors"
	"fmt"
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
)

// Render writes a small overlay, whose resources lie below root, into dir and builds it. It is a file because kustomize
// has no other way to combine bases, and it stays there for people to look at.
func Render(root string, overlay types.Kustomization, dir string) ([]*unstructured.Unstructured, error) {
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		overlay.Resources, err = seenFrom(dir, root, overlay.Resources)
	}
	if err != nil {
		return nil, err
	}
	content, err := yaml.Marshal(overlay)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), content, 0o644); err != nil {
		return nil, err
	}
	options := krusty.MakeDefaultOptions()
	// Single files lie outside of the overlay's directory.
	options.LoadRestrictions = types.LoadRestrictionsNone
	built, err := krusty.MakeKustomizer(options).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return nil, fmt.Errorf("failed to render %s in %s: %w", overlay.Resources, dir, err)
	}
	if content, err = built.AsYaml(); err != nil {
		return nil, err
	}
	return Decode(content)
}

// seenFrom names resources relative to dir, since kustomize refuses absolute directories. It compares real paths, so
// symbolic links are resolved first.
func seenFrom(dir, root string, resources []string) (relative []string, err error) {
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, err
	}
	for _, resource := range resources {
		path, err := filepath.EvalSymlinks(filepath.Join(root, resource))
		if err != nil {
			return nil, fmt.Errorf("manifests are missing: %w", err)
		}
		if path, err = filepath.Rel(dir, path); err != nil {
			return nil, err
		}
		relative = append(relative, path)
	}
	return relative, nil
}

// Decode splits a stream of YAML documents into objects.
func Decode(stream []byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(stream), 4096)
	for {
		obj := &unstructured.Unstructured{}
		err := decoder.Decode(&obj.Object)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("failed to decode manifest %d: %w", len(objects)+1, err)
		}
		if len(obj.Object) > 0 {
			objects = append(objects, obj)
		}
	}
}

// MustDecode is Decode for manifests that are part of the program.
func MustDecode(stream []byte) []*unstructured.Unstructured {
	objects, err := Decode(stream)
	if err != nil {
		panic(err)
	}
	return objects
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

// NamesOf are the names of the objects of a kind.
func NamesOf(objects []*unstructured.Unstructured, kind string) []string {
	var names []string
	those, _ := Partition(objects, kind)
	for _, obj := range those {
		names = append(names, obj.GetName())
	}
	return names
}
