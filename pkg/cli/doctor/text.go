// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// patchCommand is the command that changes one field of a cluster-wide object.
func patchCommand(kind, name, op, path string, value any) string {
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	data, err := json.Marshal([]operation{{Op: op, Path: path, Value: value}})
	if err != nil {
		panic(fmt.Sprintf("a patch of %s %s: %v", kind, name, err)) // only texts, maps and API types come here
	}
	return fmt.Sprintf("kubectl patch %s %s --type=json -p %s", kind, name, quoted(string(data)))
}

// quoted is a text as one word of a shell.
func quoted(text string) string {
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// quotedIfNeeded leaves a word of letters, digits and a few signs as it is.
func quotedIfNeeded(text string) string {
	if plain.MatchString(text) {
		return text
	}
	return quoted(text)
}

var plain = regexp.MustCompile(`^[A-Za-z0-9@:/._-]+$`)

// sentence ends with a full stop.
func sentence(text string) string {
	return strings.TrimRight(strings.TrimSpace(text), ".") + "."
}
