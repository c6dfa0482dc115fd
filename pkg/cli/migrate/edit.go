// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/order"
	kyaml "sigs.k8s.io/kustomize/kyaml/yaml"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/manifest"
)

// edited returns the text of a document with conversions made, and comments that have no place any more. YAML is printed by
// kyaml, with comments and with fields in their order, JSON with sorted fields. Without a change the text stays.
func edited(doc *manifest.Document, conversions []*conversion) (text []byte, lost []string, err error) {
	if !slices.ContainsFunc(conversions, func(c *conversion) bool { return c.change != "" }) {
		return doc.Text(), nil, nil
	}
	want, err := doc.JSON()
	if err != nil {
		return nil, nil, err
	}
	for _, c := range conversions {
		want = bytes.Replace(want, c.JSON, c.after, 1)
	}
	older := strings.ReplaceAll(string(doc.Text()), "\r\n", "\n")
	if json.Valid(doc.Text()) {
		text, err = printJSON(older, want)
	} else if text, err = editYAML(older, conversions); err == nil {
		lost, err = lostComments(older, string(text)), agree(text, want)
	}
	if strings.TrimLeft(older, " \t") != older { // What stands behind --- gets a line of its own.
		text = slices.Concat([]byte("\n"), text)
	}
	if len(older) < len(doc.Text()) {
		text = bytes.ReplaceAll(text, []byte("\n"), []byte("\r\n"))
	}
	return text, lost, err
}

// errDisagree is of text that the YAML library reads, and prints as something else.
var errDisagree = errors.New("reprinted, it would not say the same as the converted TrainJob, so it is left alone: " +
	"write it in plain block style and run this again")

func agree(text, want []byte) error {
	got, err := sigsyaml.YAMLToJSONStrict(text)
	if err != nil {
		return fmt.Errorf("%w (%w)", errDisagree, err)
	}
	if want, err = sigsyaml.YAMLToJSON(want); err != nil || !bytes.Equal(got, want) {
		return errDisagree
	}
	return nil
}

// jsonIndent is what stands before the first field.
var jsonIndent = regexp.MustCompile(`^\s*{\n([ \t]*)`)

// printJSON prints data in one line or in several, as the older text has it.
func printJSON(older string, data []byte) ([]byte, error) {
	var value any
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if indent := jsonIndent.FindStringSubmatch(older); indent != nil {
		encoder.SetIndent("", indent[1])
	}
	err := encoder.Encode(value)
	end := older[len(strings.TrimRight(older, "\n")):]
	return append(bytes.TrimSpace(out.Bytes()), end...), err
}

// editYAML makes conversions in YAML. What aliases stand for is written out, as it may be converted in one place only.
func editYAML(older string, conversions []*conversion) ([]byte, error) {
	root, err := kyaml.Parse(older)
	if err != nil {
		return nil, err
	}
	if err := root.DeAnchor(); err != nil {
		return nil, err
	}
	for _, c := range conversions {
		if err := c.edit(at(root, c.Steps...)); err != nil {
			return nil, err
		}
	}
	return printYAML(older, root)
}

// edit puts the entries in the place of a field of the spec that goes.
func (c *conversion) edit(job *kyaml.RNode) error {
	at(job, "apiVersion").YNode().Value = c.apiVersion
	spec := at(job, "spec")
	gone := c.gone
	if c.patches != nil {
		data, err := sigsyaml.JSONToYAML(c.patches)
		if err != nil {
			return err
		}
		list, err := kyaml.Parse(string(data))
		if err != nil {
			return err
		}
		field := spec.Field(gone[0])
		carryComments(gone, spec, field.Key.YNode(), list, c.owner)
		field.Key.YNode().Value, *field.Value.YNode() = "runtimePatches", *list.YNode()
		spec.YNode().Style &^= kyaml.FlowStyle
		gone = gone[1:]
	}
	for _, name := range gone {
		if err := spec.PipeE(kyaml.Clear(name)); err != nil {
			return err
		}
	}
	return nil
}

// yamlIndent is how far fields stand behind the metadata or the spec that they are in.
var yamlIndent = regexp.MustCompile(`(?m)^([ -]*)(?:metadata|spec):.*\n( +)\S`)

// printYAML prints a document indented as the older text is.
func printYAML(older string, root *kyaml.RNode) ([]byte, error) {
	var out bytes.Buffer
	style := kyaml.SequenceIndentStyle(kyaml.DeriveSeqIndentStyle(older))
	encoder := kyaml.NewEncoderWithOptions(&out, &kyaml.EncoderOptions{SeqIndent: style})
	if indent := yamlIndent.FindStringSubmatch(older); indent != nil {
		encoder.SetIndent(max(kyaml.DefaultIndent, len(indent[2])-len(indent[1])))
	}
	err := errors.Join(encoder.Encode(root.Document()), encoder.Close())
	return out.Bytes(), err
}

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
