// SPDX-License-Identifier: Apache-2.0

// Package logtail quotes the end of a log in an error message.
package logtail

import (
	"bytes"
	"fmt"
	"os"
	"strings"
)

const (
	lines = 15
	// maxLine keeps structured log lines, which can be pages long, readable.
	maxLine = 400
)

// Of returns the last lines of the file, indented and under a line that names it.
func Of(path string) string {
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Sprintf("\n  (no log: %v)", err)
	}
	all := bytes.Split(bytes.TrimRight(content, "\n"), []byte("\n"))
	all = all[max(0, len(all)-lines):]
	var out strings.Builder
	fmt.Fprintf(&out, "\n  last lines of %s:", path)
	for _, line := range all {
		if len(line) > maxLine {
			line = append(line[:maxLine:maxLine], " …"...)
		}
		fmt.Fprintf(&out, "\n  | %s", bytes.ToValidUTF8(line, []byte("?")))
	}
	return out.String()
}
