// SPDX-License-Identifier: Apache-2.0

package show

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/util/jsonpath"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
)

// The formats of -o that several commands have.
const (
	Wide     = "wide"
	JSON     = "json"
	YAML     = "yaml"
	JSONPath = "jsonpath=" // with a template of kubectl's, where there is JSON: jsonpath={.field}
)

// ForMachines reports whether Encode writes a format.
func ForMachines(format string) bool {
	return format == JSON || format == YAML || strings.HasPrefix(format, JSONPath)
}

// The formats of tables and of pictures.
const (
	CSV = "csv"
	SVG = "svg"
)

// checkFormat refuses a value of -o that is neither empty nor one of those known.
func checkFormat(format string, known []string) error {
	switch {
	case format == "" || slices.Contains(known, format):
		return nil
	case strings.HasPrefix(format, JSONPath) && slices.Contains(known, JSON):
		_, err := parseJSONPath(format)
		return err
	}
	return fmt.Errorf("--output %s: there is no such format: use %s", format, formats(known))
}

// formats names those that are known, with that of a template, which goes with JSON.
func formats(known []string) string {
	if slices.Contains(known, JSON) {
		known = append(slices.Clone(known), JSONPath+"TEMPLATE")
	}
	return either(known)
}

func parseJSONPath(format string) (*jsonpath.JSONPath, error) {
	template := strings.TrimPrefix(format, JSONPath)
	if !strings.Contains(template, "{") {
		template = "{" + template + "}"
	}
	path := jsonpath.New("output").AllowMissingKeys(true)
	if err := path.Parse(template); err != nil {
		return nil, fmt.Errorf("--output %s: write a template such as jsonpath='{.name}': %w", format, err)
	}
	return path, nil
}

// encodeJSONPath goes by the names that JSON has.
func encodeJSONPath(out io.Writer, format string, value any) error {
	path, err := parseJSONPath(format)
	if err != nil {
		return err
	}
	var tree any
	data, err := json.Marshal(value)
	if err == nil {
		err = json.Unmarshal(data, &tree)
	}
	if err != nil {
		return fmt.Errorf("encoding for -o %s: %w", format, err)
	}
	return path.Execute(out, tree)
}

// Encode writes a value for machines: as JSON or YAML, or what a JSONPath picks of it.
func Encode(out io.Writer, format string, value any) error {
	if strings.HasPrefix(format, JSONPath) {
		return encodeJSONPath(out, format, value)
	}
	if format == YAML {
		data, err := yaml.Marshal(value)
		if err != nil {
			return fmt.Errorf("encoding for -o %s: %w", format, err)
		}
		_, err = out.Write(data)
		return err
	}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(value)
}

// OutputFlag adds -o, which takes the formats that a command knows beside its text.
func OutputFlag(cmd *cobra.Command, format *string, known ...string) {
	check := func(text string) error { return checkFormat(text, known) }
	cmd.Flags().VarP(&word{format, check}, "output", "o", formats(known))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(known, cobra.ShellCompDirectiveNoFileComp))
}

// OneOf adds a flag that takes one of some words; what it has before is the default.
func OneOf(cmd *cobra.Command, value *string, name, usage string, words ...string) {
	cmd.Flags().Var(&word{value, func(text string) error {
		if slices.Contains(words, text) {
			return nil
		}
		return fmt.Errorf("--%s %s: use %s", name, text, either(words))
	}}, name, usage)
	_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

// word is the value of a flag that not every text is right for.
type word struct {
	value *string
	check func(string) error
}

func (w *word) String() string {
	return ptr.Deref(w.value, "")
}

// Set takes a text that is right.
func (w *word) Set(text string) error {
	if err := w.check(text); err != nil {
		return err
	}
	*w.value = text
	return nil
}

// Type is what help says of the value.
func (*word) Type() string { return "string" }

// either is "wide, json or yaml".
func either(names []string) string {
	last := len(names) - 1
	if last == 0 {
		return names[0]
	}
	return strings.Join(names[:last], ", ") + " or " + names[last]
}
