// SPDX-License-Identifier: Apache-2.0

package show

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/yaml"
)

// The formats of -o that several commands have.
const (
	Wide = "wide"
	JSON = "json"
	YAML = "yaml"
	// JSONPath begins the format that prints what a template of kubectl's picks:
	// jsonpath={.field}. It goes with JSON.
	JSONPath = "jsonpath="
)

// ForMachines reports whether Encode writes a format.
func ForMachines(format string) bool {
	return format == JSON || format == YAML || strings.HasPrefix(format, JSONPath)
}

// KnownFormat refuses a value of -o that is neither empty nor one of those known.
func KnownFormat(format string, known ...string) error {
	if format == "" || slices.Contains(known, format) {
		return nil
	}
	if slices.Contains(known, JSON) {
		if strings.HasPrefix(format, JSONPath) {
			_, err := parseJSONPath(format)
			return err
		}
		known = append(slices.Clone(known), JSONPath+"TEMPLATE")
	}
	return fmt.Errorf("--output %s: there is no such format: use %s", format, either(known))
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
	data, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encoding for -o %s: %w", format, err)
	}
	var tree any
	if err := json.Unmarshal(data, &tree); err != nil {
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
