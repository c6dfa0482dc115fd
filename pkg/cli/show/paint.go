// SPDX-License-Identifier: Apache-2.0

// Package show prints for eyes: colours on terminals, aligned columns, units as kubectl has
// them.
//
// flags.go has -o and its like, output.go its formats, paint.go colours, screen.go what a terminal may be told, table.go
// columns, units.go units.
package show

import (
	"io"
	"os"

	"golang.org/x/term"
)

// Paint colours words, on a terminal only, and not with NO_COLOR (https://no-color.org).
// The zero value never does.
type Paint struct{ on bool }

// Painter returns the Paint for an output.
func Painter(out io.Writer) Paint {
	return Paint{on: Terminal(out) && wanted()}
}

// wanted reports whether the environment has nothing against colours.
func wanted() bool { return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" }

// Terminal reports whether somebody looks at out while it is written.
func Terminal(out io.Writer) bool {
	file, ok := Cursor(out).(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

func (p Paint) code(code, text string) string {
	if !p.on || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// Bold is for headings.
func (p Paint) Bold(text string) string { return p.code("1", text) }

// Dim is for what matters less.
func (p Paint) Dim(text string) string { return p.code("2", text) }

// Red is for what is wrong.
func (p Paint) Red(text string) string { return p.code("31", text) }

// Green is for what is in order.
func (p Paint) Green(text string) string { return p.code("32", text) }

// Yellow is for what waits, or wants a look.
func (p Paint) Yellow(text string) string { return p.code("33", text) }

// Cyan is for names that lead on.
func (p Paint) Cyan(text string) string { return p.code("36", text) }
