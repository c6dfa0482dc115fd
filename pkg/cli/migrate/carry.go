// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	sigsyaml "sigs.k8s.io/yaml"
)

// source is a part of the older fields, from which a part of the new one was made.
type source struct {
	manager string
	// job is the replicated job; empty for the JobSet.
	job string
	// ofJob is for the Job and not for its pods.
	ofJob bool
	// node is a mapping that has metadata and spec, or what stands in metadata.
	node *yaml.Node
	// comments are those on what has no place in the new field.
	comments []string
}

// sourcesOf finds the parts of the older fields, the weakest first, as
// convert.ManifestToRuntimePatches reads them.
func sourcesOf(fields *yaml.Node, owner string) []source {
	all := []source{{manager: owner, node: fields}}
	_, list := pair(fields, "jobTemplateOverrides")
	for _, item := range items(list) {
		all = append(all, override(item, text(item, "manager"), true)...)
	}
	_, list = pair(fields, "podTemplateOverrides")
	for _, item := range items(list) {
		all = append(all, override(item, cmp.Or(text(item, "manager"), owner), false)...)
	}
	_, list = pair(fields, "templateOverrides")
	for _, entry := range items(list) {
		all = append(all, entrySources(entry)...)
	}
	return all
}

// entrySources reads an entry of templateOverrides: lists of overrides for jobs and pods,
// or one for pods.
func entrySources(entry *yaml.Node) []source {
	manager := text(entry, "manager")
	_, jobs := pair(entry, "job")
	_, pods := pair(entry, "pod")
	if jobs == nil && pods == nil {
		return override(entry, manager, false)
	}
	all := []source{{manager: manager, node: &yaml.Node{}, comments: comments(entry, "job", "pod")}}
	for _, item := range items(jobs) {
		all = append(all, override(item, manager, true)...)
	}
	for _, item := range items(pods) {
		all = append(all, override(item, manager, false)...)
	}
	return all
}

// override reads one for its replicated jobs. The first of them gets the comments, other
// than those on a single one.
func override(item *yaml.Node, manager string, ofJob bool) []source {
	common := source{manager: manager, ofJob: ofJob, node: item, comments: comments(item, "metadata", "spec", "targetJobs")}
	key, targets := pair(item, "targetJobs")
	if key != nil {
		common.comments = append(common.comments, commentsOf(key)...)
		common.comments = append(common.comments, commentsOf(targets)...)
	}
	if len(items(targets)) == 0 {
		common.ofJob = false
		return []source{common}
	}
	var all []source
	for _, target := range items(targets) {
		s := common
		s.job = text(target, "name")
		walk(target, func(n *yaml.Node) { s.comments = append(slices.Clip(s.comments), commentsOf(n)...) })
		all = append(all, s)
		common.node, common.comments = uncommented(item), nil
	}
	return all
}

// uncommented copies a node without comments.
func uncommented(node *yaml.Node) *yaml.Node {
	copied := clone(node)
	walk(copied, func(n *yaml.Node) { n.HeadComment, n.LineComment, n.FootComment = "", "", "" })
	return copied
}

func commentsOf(node *yaml.Node) []string {
	return slices.DeleteFunc([]string{node.HeadComment, node.LineComment, node.FootComment}, func(c string) bool { return c == "" })
}

// comments are those in a mapping, other than those of the named fields.
func comments(mapping *yaml.Node, without ...string) []string {
	found := commentsOf(mapping)
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if slices.Contains(without, mapping.Content[i].Value) {
			continue
		}
		for _, node := range mapping.Content[i : i+2] {
			walk(node, func(n *yaml.Node) { found = append(found, commentsOf(n)...) })
		}
	}
	return found
}

// carry returns spec.runtimePatches as a node in which what came from the sources looks as
// it did there: comments, order of the keys, quotes. What did not looks as the YAML that kubectl
// reads has it: in block style, with quotes only where that needs them.
func carry(patches json.RawMessage, sources []source) (*yaml.Node, error) {
	data, err := sigsyaml.JSONToYAML(patches)
	if err != nil {
		return nil, err
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, err
	}
	list := doc.Content[0]
	for _, entry := range list.Content {
		carryEntry(entry, slices.DeleteFunc(slices.Clone(sources), func(s source) bool { return s.manager != text(entry, "manager") }))
	}
	return list, nil
}

func carryEntry(entry *yaml.Node, sources []source) {
	ofTarget := func(job string, ofJob bool) (nodes []*yaml.Node) {
		for _, s := range sources {
			if s.job == job && s.ofJob == ofJob {
				nodes = append(nodes, s.node)
			}
		}
		return nodes
	}
	template := down(entry, "trainingRuntimeSpec", "template")
	adoptFields(down(template, "metadata"), metadataOf(ofTarget("", false)))
	note(entry, sources, "")
	for _, job := range items(down(template, "spec", "replicatedJobs")) {
		name := text(job, "name")
		adoptFields(down(job, "template"), ofTarget(name, true))
		adoptFields(down(job, "template", "spec", "template"), ofTarget(name, false))
		note(job, sources, name)
	}
}

// metadataOf returns the mappings of labels and annotations: spec itself has them in Trainer
// 2.1, overrides in their metadata.
func metadataOf(nodes []*yaml.Node) []*yaml.Node {
	found := slices.Clone(nodes)
	for _, node := range nodes {
		if _, metadata := pair(node, "metadata"); metadata != nil {
			found = append(found, metadata)
		}
	}
	return found
}

// note puts the comments of the sources of a job above what was made of them.
func note(node *yaml.Node, sources []source, job string) {
	for _, s := range sources {
		if s.job == job && len(s.comments) > 0 {
			node.HeadComment = strings.TrimPrefix(node.HeadComment+"\n"+strings.Join(s.comments, "\n"), "\n")
		}
	}
}

// down goes through mappings; nil where there is nothing.
func down(node *yaml.Node, keys ...string) *yaml.Node {
	for _, key := range keys {
		_, node = pair(node, key)
	}
	return node
}

// adopt makes a fresh node look like the sources that say the same, the last above all.
func adopt(fresh *yaml.Node, sources []*yaml.Node) {
	if fresh == nil || len(sources) == 0 {
		return
	}
	for _, s := range slices.Backward(sources) {
		if s.Kind == fresh.Kind && plain(s) && sameValue(fresh, s) {
			*fresh = *clone(s)
			return
		}
	}
	adoptComments(fresh, sources)
	switch fresh.Kind {
	case yaml.MappingNode:
		adoptFields(fresh, sources)
	case yaml.SequenceNode:
		for _, item := range fresh.Content {
			adopt(item, counterparts(item, sources))
		}
	}
}

// adoptComments takes every kind of comment from the last node that has one.
func adoptComments(fresh *yaml.Node, sources []*yaml.Node) {
	for _, s := range sources {
		for from, to := range map[*string]*string{
			&s.HeadComment: &fresh.HeadComment, &s.LineComment: &fresh.LineComment, &s.FootComment: &fresh.FootComment,
		} {
			if *from != "" {
				*to = *from
			}
		}
	}
}

// adoptFields goes on with every field, and puts them into the order of the sources.
func adoptFields(fresh *yaml.Node, sources []*yaml.Node) {
	if fresh == nil {
		return
	}
	var order []string
	for _, s := range sources {
		for i := 0; s.Kind == yaml.MappingNode && i+1 < len(s.Content); i += 2 {
			order = append(order, s.Content[i].Value)
		}
	}
	var ordered, rest []*yaml.Node
	for i := 0; i+1 < len(fresh.Content); i += 2 {
		key, value := fresh.Content[i], fresh.Content[i+1]
		var keys, values []*yaml.Node
		for _, s := range sources {
			if k, v := pair(s, key.Value); k != nil {
				keys, values = append(keys, k), append(values, v)
			}
		}
		adoptComments(key, keys)
		adopt(value, values)
		if !slices.Contains(order, key.Value) {
			rest = append(rest, key, value)
		}
	}
	for i, name := range order {
		if k := indexOf(fresh, name); k >= 0 && !slices.Contains(order[:i], name) {
			ordered = append(ordered, fresh.Content[k], fresh.Content[k+1])
		}
	}
	fresh.Content = slices.Concat(ordered, rest)
}

// counterparts are the items of lists that have the fresh item's key, or say the same.
func counterparts(fresh *yaml.Node, lists []*yaml.Node) []*yaml.Node {
	var found []*yaml.Node
	for _, list := range lists {
		for _, item := range items(list) {
			if sameKey(fresh, item) || sameValue(fresh, item) {
				found = append(found, item)
			}
		}
	}
	return found
}

func sameKey(a, b *yaml.Node) bool {
	for _, key := range []string{"mountPath", "name", "key"} {
		if text(a, key) != "" {
			return text(a, key) == text(b, key)
		}
	}
	return false
}
