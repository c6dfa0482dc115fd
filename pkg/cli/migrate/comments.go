// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"cmp"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/order"
	kyaml "sigs.k8s.io/kustomize/kyaml/yaml"
)

// comment is what looks like one in a line of YAML.
var comment = regexp.MustCompile(`(?m)(?:^|[ \t])(#.*)$`)

// lostComments are those of the older text that the newer one has not, be it that the YAML library loses sight of them.
func lostComments(older, newer string) (lost []string) {
	left := map[string]int{}
	// Text with a # in it may come to be quoted in another way.
	bare := func(found []string) string { return strings.TrimRight(found[1], `"'}], `) }
	for _, found := range comment.FindAllStringSubmatch(newer, -1) {
		left[bare(found)]++
	}
	for _, found := range comment.FindAllStringSubmatch(older, -1) {
		if left[bare(found)]--; left[bare(found)] < 0 {
			lost = append(lost, found[1])
		}
	}
	return lost
}

// carryComments moves those of older fields of a spec to the entries that were made of them, and to their key.
func carryComments(older []string, spec *kyaml.RNode, key *kyaml.Node, entries *kyaml.RNode, owner string) {
	metadata := at(entries, "[manager="+owner+"]", "trainingRuntimeSpec", "template", "metadata")
	carry(spec.YNode(), metadata.YNode())
	for _, name := range older {
		if from := spec.Field(name); isOverrides(name) {
			move(from.Key.YNode(), key)
			move(from.Value.YNode(), key)
			carryOverrides(from.Value, entries, owner, name == "jobTemplateOverrides")
		}
	}
}

// carryOverrides does so, and with the order of fields, for an override, for those of a list, and for what templateOverrides have for the Job and for its pods.
// Comments on what has no place in the entry go above it, or above the first replicated job that the override is for.
func carryOverrides(from, entries *kyaml.RNode, manager string, ofJob bool) {
	if from == nil {
		return
	}
	manager = cmp.Or(text(from, "manager"), manager)
	for _, item := range elements(from) {
		carryOverrides(item, entries, manager, ofJob)
	}
	carryOverrides(at(from, "job"), entries, manager, true)
	carryOverrides(at(from, "pod"), entries, manager, false)
	template := []string{"template", "spec", "template"}
	if ofJob {
		template = template[:1]
	}
	entry := at(entries, "[manager="+manager+"]")
	rest := entry
	for i, target := range elements(at(from, "targetJobs")) {
		job := at(entry, "trainingRuntimeSpec", "template", "spec", "replicatedJobs", "[name="+text(target, "name")+"]")
		patch := at(job, template...)
		carry(from.YNode(), patch.YNode())
		_ = order.SyncOrder(from, patch) // As far as the two are alike.
		if i == 0 {
			rest = job
		} else {
			above(target, job)
		}
	}
	above(from, rest)
}

// carry moves comments on what is in a node to what says the same in another one, which may be nil.
func carry(from, to *kyaml.Node) {
	if to == nil || from.Kind != to.Kind {
		return
	}
	step := 1
	if from.Kind == kyaml.MappingNode {
		step = 2
	}
	for i := 0; i < len(from.Content); i += step {
		for j := 0; j < len(to.Content); j += step {
			if same(from.Content[i], to.Content[j]) {
				for n := range step {
					move(from.Content[i+n], to.Content[j+n])
					carry(from.Content[i+n], to.Content[j+n])
				}
			}
		}
	}
}

// same reports whether two keys, or items of lists, stand for the same.
func same(a, b *kyaml.Node) bool {
	for _, key := range []string{"mountPath", "name"} {
		if name := text(kyaml.NewRNode(a), key); name != "" {
			return name == text(kyaml.NewRNode(b), key)
		}
	}
	var one, other any
	return a.Decode(&one) == nil && b.Decode(&other) == nil && reflect.DeepEqual(one, other)
}

// move takes the comments to a node that has none of their kind, and the manner of writing with them: quotes and braces.
func move(from, to *kyaml.Node) {
	if from.Kind == to.Kind && from.Value == to.Value {
		to.Style = from.Style
	}
	for older, newer := range map[*string]*string{
		&from.HeadComment: &to.HeadComment, &from.LineComment: &to.LineComment, &from.FootComment: &to.FootComment,
	} {
		if *newer == "" {
			*newer, *older = *older, ""
		}
	}
}

// above puts all comments that are left in a node above another one.
func above(from, to *kyaml.RNode) {
	if from != nil && to != nil {
		head := &to.YNode().HeadComment
		*head = strings.Trim(*head+"\n"+strings.Join(take(from.YNode()), "\n"), "\n")
	}
}

// take takes all comments out of a node.
func take(node *kyaml.Node) []string {
	comments := []string{node.HeadComment, node.LineComment}
	for _, child := range node.Content {
		comments = append(comments, take(child)...)
	}
	comments = append(comments, node.FootComment)
	node.HeadComment, node.LineComment, node.FootComment = "", "", ""
	return slices.DeleteFunc(comments, func(comment string) bool { return comment == "" })
}

// at goes down from a node; nil where there is nothing.
func at(node *kyaml.RNode, path ...string) *kyaml.RNode {
	found, _ := node.Pipe(kyaml.Lookup(path...))
	return found
}

// text is the value of a field that holds a string.
func text(node *kyaml.RNode, key string) string {
	value, _ := node.GetString(key)
	return value
}

func elements(node *kyaml.RNode) []*kyaml.RNode {
	items, _ := node.Elements() // It fails for what is no list.
	return items
}
