// SPDX-License-Identifier: Apache-2.0

package show

import (
	"io"
	"os"
	"regexp"
	"strings"
)

// Screen is a terminal that only shows what is written to it: messages of pods, events and conditions, which are other
// people's, can neither move the cursor nor hide a line.
type Screen struct{ file *os.File }

// OnScreen returns a Screen where out is a terminal, and out as it is elsewhere.
func OnScreen(out io.Writer) io.Writer {
	if file, ok := out.(*os.File); ok && Terminal(out) {
		return &Screen{file}
	}
	return out
}

// Write implements io.Writer.
func (s *Screen) Write(p []byte) (int, error) {
	if _, err := io.WriteString(s.file, visible(string(p), "\n\t")); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Cursor returns what takes the codes that move the cursor of a terminal.
func Cursor(out io.Writer) io.Writer {
	if screen, ok := out.(*Screen); ok {
		return screen.file
	}
	return out
}

// obeyed is what a terminal obeys instead of showing it: what Paint writes, control characters, and those that turn the
// direction of a text.
var obeyed = regexp.MustCompile(`\x1b\[(?:0|1|2|3[1236])m|[\p{Cc}\x{061C}\x{200E}\x{200F}\x{202A}-\x{202E}\x{2066}-\x{2069}]`)

// visible replaces it, but those characters to keep and Paint's.
func visible(text, keep string) string {
	return obeyed.ReplaceAllStringFunc(text, func(found string) string {
		if strings.HasSuffix(found, "m") || strings.Contains(keep, found) {
			return found
		}
		return "\uFFFD"
	})
}

// Line is a text on one line: a newline of other people's begins none.
func Line(text string) string { return visible(strings.Join(strings.Fields(text), " "), "") }
