// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

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
