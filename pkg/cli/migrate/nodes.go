// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"bytes"
	"encoding/json"
	"reflect"

	"go.yaml.in/yaml/v3"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/manifest"
)

// indexOf is the place of a key in a mapping's content, or -1.
func indexOf(node *yaml.Node, key string) int {
	if node == nil || node.Kind != yaml.MappingNode {
		return -1
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == key {
			return i
		}
	}
	return -1
}

// pair is a key of a mapping and its value, aliases resolved.
func pair(node *yaml.Node, key string) (keyNode, value *yaml.Node) {
	i := indexOf(node, key)
	if i < 0 {
		return nil, nil
	}
	return node.Content[i], manifest.Resolve(node.Content[i+1])
}

// text is the value of a key that holds a scalar.
func text(node *yaml.Node, key string) string {
	if _, value := pair(node, key); value != nil && value.Kind == yaml.ScalarNode {
		return value.Value
	}
	return ""
}

// items are the values of a list, aliases resolved.
func items(list *yaml.Node) []*yaml.Node {
	if list == nil || list.Kind != yaml.SequenceNode {
		return nil
	}
	values := make([]*yaml.Node, 0, len(list.Content))
	for _, item := range list.Content {
		values = append(values, manifest.Resolve(item))
	}
	return values
}

// after is the line where the content behind the i-th begins, or limit.
func after(node *yaml.Node, i, limit int) int {
	if i+1 < len(node.Content) {
		return node.Content[i+1].Line
	}
	return limit
}

// walk visits a node and everything in it, but not what aliases stand for.
func walk(node *yaml.Node, visit func(*yaml.Node)) {
	if node == nil {
		return
	}
	visit(node)
	for _, child := range node.Content {
		walk(child, visit)
	}
}

// plain reports whether a node can be understood alone: it has no alias, and so no merge.
func plain(node *yaml.Node) bool {
	is := true
	walk(node, func(n *yaml.Node) { is = is && n.Kind != yaml.AliasNode })
	return is
}

// clone copies a node without its anchors.
func clone(node *yaml.Node) *yaml.Node {
	copied := *node
	copied.Anchor = ""
	copied.Content = nil
	for _, child := range node.Content {
		copied.Content = append(copied.Content, clone(child))
	}
	return &copied
}

// sameValue compares nodes by what the API server would get.
func sameValue(a, b *yaml.Node) bool {
	one, err := jsonOf(a)
	other, otherErr := jsonOf(b)
	return err == nil && otherErr == nil && sameJSON(one, other)
}

func jsonOf(node *yaml.Node) ([]byte, error) {
	data, err := yaml.Marshal(node)
	if err != nil {
		return nil, err
	}
	return sigsyaml.YAMLToJSON(data)
}

// sameJSON compares values, whatever their spelling.
func sameJSON(a, b []byte) bool {
	one, err := decode(a)
	other, otherErr := decode(b)
	return err == nil && otherErr == nil && reflect.DeepEqual(one, other)
}

func decode(data []byte) (value any, err error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	err = decoder.Decode(&value)
	return value, err
}
