// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Tree is an object of an API, which can be encoded, as JSON has it.
func Tree(object any) any {
	var tree any
	data, _ := json.Marshal(object)
	_ = json.Unmarshal(data, &tree)
	return tree
}

var steps = regexp.MustCompile(`[^.\[\]]+|\[[^\]]*\]`)

// Follow goes down a path whose items have numbers or names. It returns the path as far as there is something, with numbers,
// and all of it with names where items have any; how long the one is, and the other.
func Follow(tree any, path string) (numbered, named string, depth, total int) {
	all := steps.FindAllString(path, -1)
	for _, step := range all {
		key, number := strings.Trim(step, "[]"), step
		switch at := tree.(type) {
		case map[string]any:
			tree = at[key]
		case []any:
			tree = nil
			if i := itemOf(at, key); i >= 0 {
				number, step, tree = "["+strconv.Itoa(i)+"]", "["+nameOf(at[i], key)+"]", at[i]
			}
		default:
			tree = nil
		}
		named = joined(named, step)
		if tree != nil {
			numbered, depth = joined(numbered, number), depth+1
		}
	}
	return numbered, named, depth, len(all)
}

func joined(path, step string) string {
	if path != "" && step[0] != '[' {
		path += "."
	}
	return path + step
}

// itemOf finds an item by its name or its number, or returns -1.
func itemOf(items []any, key string) int {
	if i := slices.IndexFunc(items, func(item any) bool { return isNamed(item, key) }); i >= 0 {
		return i
	}
	if i, err := strconv.Atoi(key); err == nil && i >= 0 && i < len(items) {
		return i
	}
	return -1
}

// names are the keys by which items are told apart.
var names = []string{"mountPath", "name"}

func isNamed(item any, name string) bool {
	fields, _ := item.(map[string]any)
	return slices.ContainsFunc(names, func(key string) bool { return fields[key] == name })
}

// nameOf is the key of an item, or what it goes by where it has none.
func nameOf(item any, otherwise string) string {
	fields, _ := item.(map[string]any)
	for _, key := range names {
		if name, ok := fields[key].(string); ok && name != "" {
			return name
		}
	}
	return otherwise
}
