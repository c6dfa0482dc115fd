// SPDX-License-Identifier: Apache-2.0

package show

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// The formats of -o that several commands have.
const (
	Wide = "wide"
	JSON = "json"
	YAML = "yaml"
)

// KnownFormat refuses a value of -o that is neither empty nor one of those known.
func KnownFormat(format string, known ...string) error {
	if format == "" || slices.Contains(known, format) {
		return nil
	}
	last := len(known) - 1
	names := known[last]
	if last > 0 {
		names = strings.Join(known[:last], ", ") + " or " + names
	}
	return fmt.Errorf("--output %s: there is no such format: use %s", format, names)
}

// Encode writes a value for machines, as JSON or YAML.
func Encode(out io.Writer, format string, value any) error {
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
