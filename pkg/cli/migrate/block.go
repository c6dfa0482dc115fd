// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// edit replaces lines of a document, from the first up to but not including the last,
// which count from 1.
type edit struct {
	first, last int
	text        string
}

// lines splits text after every line end.
func lines(text []byte) []string {
	all := strings.SplitAfter(string(text), "\n")
	if all[len(all)-1] == "" {
		all = all[:len(all)-1]
	}
	return all
}

// block edits TrainJobs in YAML's block style. The edits of a document do not overlap.
type block struct {
	text  []byte
	lines []string
	owner string
	edits []edit
	// lost are comments that have no place any more.
	lost []string
}

// edited is the text with the edits made.
func (b *block) edited() []byte {
	all := slices.Clone(b.lines)
	slices.SortFunc(b.edits, func(a, b edit) int { return b.first - a.first })
	for _, e := range b.edits {
		all = slices.Replace(all, e.first-1, e.last-1, e.text)
	}
	return []byte(strings.Join(all, ""))
}

// edit adds what a conversion makes of a TrainJob.
func (b *block) edit(o *object, c *conversion) error {
	if c.before.APIVersion != c.after.APIVersion {
		if err := b.version(o, c); err != nil {
			return err
		}
	}
	gone := c.gone()
	if len(gone) == 0 {
		return nil
	}
	at := indexOf(o.Node, "spec")
	spec := o.Node.Content[at+1]
	if spec.Kind != yaml.MappingNode || spec.Style&yaml.FlowStyle != 0 || o.Node.Style&yaml.FlowStyle != 0 {
		return errors.New("spec is written in braces or by an alias: write it field by field, each on a line of its own")
	}
	limit := after(o.Node, at+1, o.limit)
	var removed []edit
	for _, name := range gone {
		e, err := b.field(spec, name, limit)
		if err != nil {
			return err
		}
		removed = append(removed, e)
	}
	slices.SortFunc(removed, func(a, b edit) int { return a.first - b.first })
	if err := anchorsStay(o, removed); err != nil {
		return err
	}
	fields := b.cut(spec, removed)
	made, err := b.made(o, c, fields)
	if err != nil {
		return err
	}
	removed[0].text = made
	b.edits = append(b.edits, removed...)
	b.lost = append(b.lost, lostComments(fields, made)...)
	return nil
}

// version replaces the value of apiVersion.
func (b *block) version(o *object, c *conversion) error {
	value := o.Node.Content[indexOf(o.Node, "apiVersion")+1]
	line := b.lines[value.Line-1]
	at := len(string([]rune(line)[:value.Column-1]))
	if value.Kind != yaml.ScalarNode || !strings.Contains(line[at:], c.before.APIVersion) {
		return errors.New("apiVersion is not written in its line: write it out")
	}
	b.edits = append(b.edits, edit{value.Line, value.Line + 1, line[:at] + strings.Replace(line[at:], c.before.APIVersion, c.after.APIVersion, 1)})
	return nil
}

// field returns the lines of a field of the mapping and of the comment right above it; limit
// is the line behind the mapping.
func (b *block) field(mapping *yaml.Node, name string, limit int) (edit, error) {
	at := indexOf(mapping, name)
	if at < 0 {
		return edit{}, fmt.Errorf("spec.%s comes by a merge (<<): write it in spec itself", name)
	}
	key := mapping.Content[at]
	indent := key.Column - 1
	if strings.TrimSpace(b.lines[key.Line-1][:min(indent, len(b.lines[key.Line-1]))]) != "" {
		return edit{}, fmt.Errorf("spec.%s shares its line with another field: write it on a line of its own", name)
	}
	end := min(after(mapping, at+1, limit), len(b.lines)+1)
	e := edit{first: key.Line, last: end}
	for e.first > 1 && b.comment(e.first-1) && b.indent(e.first-1) == indent {
		e.first--
	}
	// What stands behind it, and not deeper, is said of the next field.
	for e.last > key.Line+1 && (b.blank(e.last-1) || b.comment(e.last-1) && b.indent(e.last-1) <= indent) {
		e.last--
	}
	for keeps(mapping.Content[at+1]) && e.last < end && b.blank(e.last) {
		e.last++
	}
	return e, nil
}

// keeps reports whether what ends a value is a text with the empty lines behind it (|+).
func keeps(value *yaml.Node) bool {
	for len(value.Content) > 0 {
		value = value.Content[len(value.Content)-1]
	}
	return value.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 && strings.HasSuffix("\n"+value.Value, "\n\n")
}

func (b *block) blank(line int) bool { return strings.TrimSpace(b.lines[line-1]) == "" }

func (b *block) comment(line int) bool {
	return strings.HasPrefix(strings.TrimSpace(b.lines[line-1]), "#")
}

func (b *block) indent(line int) int {
	return len(b.lines[line-1]) - len(strings.TrimLeft(b.lines[line-1], " "))
}

// anchorsStay reports whether nothing outside of the removed lines depends on an anchor in
// them.
func anchorsStay(o *object, removed []edit) (err error) {
	within := func(n *yaml.Node) bool {
		return slices.ContainsFunc(removed, func(e edit) bool { return n.Line >= e.first && n.Line < e.last })
	}
	walk(o.Node, func(n *yaml.Node) {
		if n.Kind == yaml.AliasNode && within(n.Alias) && !within(n) {
			err = fmt.Errorf("anchor &%s stands in what is converted and is used outside of it: write it out there", n.Value)
		}
	})
	return err
}

// cut returns the removed fields with just the comments that go with them: read on their
// own or, where they use anchors from elsewhere, picked by what stands in the lines.
func (b *block) cut(spec *yaml.Node, removed []edit) *yaml.Node {
	var alone strings.Builder
	for _, e := range removed {
		alone.WriteString(strings.Join(b.lines[e.first-1:e.last-1], ""))
	}
	var doc yaml.Node
	// The library loses sight of comments at Windows' line ends.
	err := yaml.Unmarshal([]byte(strings.ReplaceAll(alone.String(), "\r\n", "\n")), &doc)
	if err == nil && len(doc.Content) == 1 && doc.Content[0].Kind == yaml.MappingNode {
		doc.Content[0].HeadComment, doc.Content[0].FootComment = doc.HeadComment, doc.FootComment
		return doc.Content[0]
	}
	fields := &yaml.Node{Kind: yaml.MappingNode}
	for i := 0; i+1 < len(spec.Content); i += 2 {
		if slices.ContainsFunc(removed, func(e edit) bool { return spec.Content[i].Line >= e.first && spec.Content[i].Line < e.last }) {
			fields.Content = append(fields.Content, clone(spec.Content[i]), clone(spec.Content[i+1]))
		}
	}
	walk(fields, func(n *yaml.Node) {
		for _, comment := range []*string{&n.HeadComment, &n.LineComment, &n.FootComment} {
			*comment = linesIn(*comment, alone.String())
		}
	})
	return fields
}

// linesIn keeps the lines of a comment that stand in the text.
func linesIn(comment, text string) string {
	kept := slices.DeleteFunc(strings.Split(comment, "\n"), func(line string) bool { return !strings.Contains(text, line) })
	return strings.Join(kept, "\n")
}

// made is the text of the new field, in the manner of the document.
func (b *block) made(o *object, c *conversion, fields *yaml.Node) (string, error) {
	if c.patches() == nil {
		return "", nil
	}
	list, err := carry(c.patches(), sourcesOf(fields, b.owner))
	if err != nil {
		return "", err
	}
	key := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: "runtimePatches"}
	for _, name := range []string{"jobTemplateOverrides", "podTemplateOverrides", "templateOverrides"} {
		k, list := pair(fields, name)
		if k == nil {
			continue
		}
		adoptComments(key, []*yaml.Node{k})
		if list.Style&yaml.FlowStyle != 0 { // What stands behind its bracket is said of all of it.
			adoptComments(key, []*yaml.Node{{LineComment: list.LineComment}})
		}
	}
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	specKey, spec := pair(o.Node, "spec")
	encoder.SetIndent(max(2, spec.Content[0].Column-specKey.Column))
	if compact(o.Node) {
		encoder.CompactSeqIndent()
	}
	if err := encoder.Encode(&yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{key, list}}); err != nil {
		return "", err
	}
	return b.fit(out.Bytes(), spec.Content[0].Column-1), nil
}

// fit indents text, and ends its lines as the document does.
func (b *block) fit(text []byte, indent int) string {
	var fitted strings.Builder
	for _, line := range lines(text) {
		if line = strings.TrimRight(line, "\r\n"); line != "" {
			line = strings.Repeat(" ", indent) + line
		}
		fitted.WriteString(line)
		if bytes.Contains(b.text, []byte("\r\n")) {
			fitted.WriteString("\r")
		}
		fitted.WriteString("\n")
	}
	return fitted.String()
}

// compact reports whether lists stand right below their keys and not deeper, as kubectl
// prints them; the first list tells.
func compact(node *yaml.Node) bool {
	found, is := false, true
	walk(node, func(n *yaml.Node) {
		for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
			key, value := n.Content[i], n.Content[i+1]
			if !found && value.Kind == yaml.SequenceNode && value.Style&yaml.FlowStyle == 0 {
				found, is = true, key.Column == value.Column
			}
		}
	})
	return is
}

// lostComments are those of the fields that the made text does not have.
func lostComments(fields *yaml.Node, made string) []string {
	var lost []string
	walk(fields, func(n *yaml.Node) {
		for _, comment := range []string{n.HeadComment, n.LineComment, n.FootComment} {
			for line := range strings.Lines(comment) {
				if line = strings.TrimSpace(line); line != "" && !strings.Contains(made, line) {
					lost = append(lost, line)
				}
			}
		}
	})
	return lost
}
