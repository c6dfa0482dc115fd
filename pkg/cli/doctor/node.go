// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"go.yaml.in/yaml/v3"
	sigsyaml "sigs.k8s.io/yaml"
)

// index returns the place of a key of a mapping, or -1.
func index(mapping *yaml.Node, key string) int {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			return i
		}
	}
	return -1
}

// child returns the value of a key; where it is missing, or of another kind, it becomes an
// empty one.
func child(mapping *yaml.Node, key string, kind yaml.Kind) *yaml.Node {
	if i := index(mapping, key); i >= 0 && mapping.Content[i+1].Kind == kind {
		return mapping.Content[i+1]
	}
	value := &yaml.Node{Kind: kind}
	put(mapping, key, value)
	return value
}

func put(mapping *yaml.Node, key string, value *yaml.Node) {
	if i := index(mapping, key); i >= 0 {
		mapping.Content[i+1] = value
		return
	}
	mapping.Content = append(mapping.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: key}, value)
}

func remove(mapping *yaml.Node, key string) {
	if i := index(mapping, key); i >= 0 {
		mapping.Content = append(mapping.Content[:i], mapping.Content[i+2:]...)
	}
}

// set puts an API value under a key, with the names it has in the API.
func set(mapping *yaml.Node, key string, value any) error {
	data, err := sigsyaml.Marshal(value)
	if err != nil {
		return err
	}
	var document yaml.Node
	if err := yaml.Unmarshal(data, &document); err != nil {
		return err
	}
	put(mapping, key, document.Content[0])
	return nil
}
