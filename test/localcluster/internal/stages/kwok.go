// SPDX-License-Identifier: Apache-2.0

package stages

import "sigs.k8s.io/yaml"

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
