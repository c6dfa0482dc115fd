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

// Source is a set of shipped manifests.
type Source struct {
	Root      string
	Resources []string
	// Namespace and NamePrefix are put on everything where the resources, being
	// bases, leave that to an overlay. Empty means they do not.
	Namespace  string
	NamePrefix string
	// ImageTag is put on images that come without one.
	ImageTag string
	Images   []string
}

// Render writes a small overlay over the source into dir and builds it. The overlay is a file because kustomize has no
// other way to combine bases, and it stays there for people to look at.
func Render(src Source, dir string) ([]*unstructured.Unstructured, error) {
	overlay, err := src.overlay(dir)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), overlay, 0o644); err != nil {
		return nil, err
	}
	options := krusty.MakeDefaultOptions()
	// Single files lie outside of the overlay's directory.
	options.LoadRestrictions = types.LoadRestrictionsNone
	built, err := krusty.MakeKustomizer(options).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return nil, fmt.Errorf("failed to render %s in %s: %w", src.Resources, src.Root, err)
	}
	content, err := built.AsYaml()
	if err != nil {
		return nil, err
	}
	return Decode(content)
}

// overlay names the resources relative to dir, since kustomize refuses absolute
// directories. It compares real paths, so symbolic links are resolved first.
func (s Source) overlay(dir string) ([]byte, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	realDir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, err
	}
	k := types.Kustomization{Namespace: s.Namespace, NamePrefix: s.NamePrefix}
	for _, resource := range s.Resources {
		path, err := filepath.EvalSymlinks(filepath.Join(s.Root, resource))
		if err != nil {
			return nil, fmt.Errorf("manifests are missing: %w", err)
		}
		if path, err = filepath.Rel(realDir, path); err != nil {
			return nil, err
		}
		k.Resources = append(k.Resources, path)
	}
	for _, image := range s.Images {
		k.Images = append(k.Images, types.Image{Name: image, NewTag: s.ImageTag})
	}
	return yaml.Marshal(k)
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
