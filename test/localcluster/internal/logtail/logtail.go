// SPDX-License-Identifier: Apache-2.0

// Package logtail quotes the end of a log in an error message.
package logtail

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
)

const (
	lines    = 15
	maxBytes = 64 << 10
	// maxLine keeps structured log lines, which can be pages long, readable.
	maxLine = 400
)

// Of returns the last lines of the file, indented and under a line that names it.
func Of(path string) string {
	content, err := readEnd(path)
	if err != nil {
		return fmt.Sprintf("\n  (no log: %v)", err)
	}
	all := strings.Split(strings.TrimRight(string(content), "\n"), "\n")
	all = all[max(0, len(all)-lines):]
	var out strings.Builder
	fmt.Fprintf(&out, "\n  last lines of %s:", path)
	for _, line := range all {
		if len(line) > maxLine {
			line = line[:maxLine] + " …"
		}
		out.WriteString("\n  | " + line)
	}
	return out.String()
}

func readEnd(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	offset := max(0, info.Size()-maxBytes)
	content, err := io.ReadAll(io.NewSectionReader(f, offset, info.Size()-offset))
	return bytes.ToValidUTF8(content, []byte("?")), err
}
