// SPDX-License-Identifier: Apache-2.0

// Command releases copies what package releases embeds out of the modules of Trainer's
// releases: the runtimes as kustomize builds them, and the schemas of the CRDs without their
// descriptions.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// modules pin the releases.
var modules = map[string]string{
	"2.1": "test/generations/trainer21",
	"2.2": "test/generations/trainer22",
	"2.3": "test/generations/trainer23",
}

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: releases KUSTOMIZE DIR, in the root of the checkout")
	}
	for release, module := range modules {
		if err := copyRelease(os.Args[1], module, filepath.Join(os.Args[2], release)); err != nil {
			log.Fatalf("Trainer %s: %v", release, err)
		}
	}
}

func copyRelease(kustomize, module, into string) error {
	trainer, err := output("go", "list", "-C", module, "-m", "-f", "{{.Dir}}", "github.com/kubeflow/trainer/v2")
	if err != nil {
		return err
	}
	manifests := filepath.Join(string(bytes.TrimSpace(trainer)), "manifests")
	runtimes, err := output(kustomize, "build", filepath.Join(manifests, "overlays", "runtimes"))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(into, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(into, "runtimes.yaml"), runtimes, 0o644); err != nil {
		return err
	}
	for _, kind := range []string{"trainjobs", "clustertrainingruntimes"} {
		schema, err := schemaOf(filepath.Join(manifests, "base", "crds", "trainer.kubeflow.org_"+kind+".yaml"))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(into, kind+".json"), schema, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func output(name string, args ...string) ([]byte, error) {
	cmd := exec.Command(name, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", cmd, err)
	}
	return out, nil
}

// schemaOf reads the schema of a CRD, which has one version.
func schemaOf(path string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var crd struct {
		Spec struct {
			Versions []struct {
				Schema struct {
					OpenAPIV3Schema map[string]any `json:"openAPIV3Schema"`
				} `json:"schema"`
			} `json:"versions"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(data, &crd); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if n := len(crd.Spec.Versions); n != 1 {
		return nil, fmt.Errorf("%s has %d versions: which one does package releases want?", path, n)
	}
	schema, err := json.Marshal(undescribed(crd.Spec.Versions[0].Schema.OpenAPIV3Schema))
	return append(schema, '\n'), err
}

// undescribed leaves descriptions out: they are most of a schema, and nothing is checked by
// them. A property of that name is an object.
func undescribed(value any) any {
	switch value := value.(type) {
	case map[string]any:
		if _, ok := value["description"].(string); ok {
			delete(value, "description")
		}
		for key := range value {
			value[key] = undescribed(value[key])
		}
	case []any:
		for i := range value {
			value[i] = undescribed(value[i])
		}
	}
	return value
}
