// SPDX-License-Identifier: Apache-2.0

package play

import "os"

// Colour is a code of terminals.
type Colour string

// The colours of the stories.
const (
	Plain  Colour = ""
	Bold   Colour = "1"
	Dim    Colour = "2"
	Red    Colour = "31"
	Green  Colour = "32"
	Yellow Colour = "33"
	Cyan   Colour = "36"
)

// Paint colours words, on a terminal only, and not with NO_COLOR (https://no-color.org).
type Paint struct{ on bool }

// NewPaint colours what is written to a file.
func NewPaint(out *os.File) Paint {
	info, err := out.Stat()
	terminal := err == nil && info.Mode()&os.ModeCharDevice != 0
	return Paint{on: terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

// In returns a text in a colour.
func (p Paint) In(colour Colour, text string) string {
	if !p.on || colour == Plain {
		return text
	}
	return "\x1b[" + string(colour) + "m" + text + "\x1b[0m"
}
