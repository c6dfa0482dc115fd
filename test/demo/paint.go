// SPDX-License-Identifier: Apache-2.0

package main

import "os"

// paint colours words, on a terminal only, and not with NO_COLOR (https://no-color.org).
type paint struct{ on bool }

func newPaint(out *os.File) paint {
	info, err := out.Stat()
	terminal := err == nil && info.Mode()&os.ModeCharDevice != 0
	return paint{on: terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

func (p paint) code(code, text string) string {
	if !p.on {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (p paint) plain(text string) string  { return text }
func (p paint) bold(text string) string   { return p.code("1", text) }
func (p paint) dim(text string) string    { return p.code("2", text) }
func (p paint) red(text string) string    { return p.code("31", text) }
func (p paint) green(text string) string  { return p.code("32", text) }
func (p paint) yellow(text string) string { return p.code("33", text) }
func (p paint) cyan(text string) string   { return p.code("36", text) }
