// SPDX-License-Identifier: Apache-2.0

package show

import (
	"io"
	"os"
	"regexp"
	"strings"
	"unicode"
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

// painted begins with what Paint writes.
var painted = regexp.MustCompile(`^\x1b\[(?:0|1|2|3[1236])m`)

// visible replaces control characters, but those to keep and Paint's, and those that turn the direction of a text.
func visible(text, keep string) string {
	if !strings.ContainsFunc(text, unseen) {
		return text
	}
	var out strings.Builder
	for text != "" {
		if code := painted.FindString(text); code != "" {
			out.WriteString(code)
			text = text[len(code):]
			continue
		}
		size := 1
		for size < len(text) && text[size]&0xC0 == 0x80 {
			size++
		}
		one := text[:size]
		if strings.ContainsFunc(one, unseen) && !strings.Contains(keep, one) {
			one = "\uFFFD"
		}
		out.WriteString(one)
		text = text[size:]
	}
	return out.String()
}

// unseen reports whether a terminal obeys a character instead of showing it.
func unseen(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) }

// Line is a text on one line: a newline of other people's begins none.
func Line(text string) string { return visible(strings.Join(strings.Fields(text), " "), "") }
