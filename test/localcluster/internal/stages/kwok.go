// SPDX-License-Identifier: Apache-2.0

// Package stages holds what the fake kubelet and the fake volume provisioner do,
// as kwok Stages. Pods run until they are told to end, by these annotations:
//
//	localcluster/run-for: 10s             succeeds that long after it started
//	localcluster/finish: succeeded|failed ends at once, also when added later
//	localcluster/terminate-after: 5s      when deleted, keeps terminating that
//	                                      long (at most its grace period)
package stages

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"

	"sigs.k8s.io/yaml"
)

// KwokConfiguration returns kwok's options and all Stages in one stream.
func KwokConfiguration() ([]byte, error) {
	options, err := yaml.Marshal(map[string]any{
		"apiVersion": "config.kwok.x-k8s.io/v1alpha1",
		"kind":       "KwokConfiguration",
		"options": map[string]any{
			// Its default holds 254 pods in a lifetime.
			"cidr":                     "10.128.0.0/9",
			"nodeLeaseDurationSeconds": 40,
			"nodeLeaseParallelism":     4,
			"nodePlayStageParallelism": 16,
			// Many pods that start together shall not wait for each other.
			"podPlayStageParallelism": 16,
			// Of a node that comes back all pods are looked at again.
			"podsOnNodeSyncParallelism":       4,
			"enablePodsOnNodeSyncStreamWatch": true,
		},
	})
	if err != nil {
		return nil, err
	}
	all, err := YAML()
	return append(options, all...), err
}

//go:embed *.yaml
var files embed.FS

// YAML returns all Stages as documents of one stream, as kwok's --config takes them.
func YAML() ([]byte, error) {
	names, err := fs.Glob(files, "*.yaml")
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	for _, name := range names {
		content, err := files.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("stage file %s: %w", name, err)
		}
		fmt.Fprintf(&out, "---\n# %s\n%s", name, content)
	}
	return out.Bytes(), nil
}
