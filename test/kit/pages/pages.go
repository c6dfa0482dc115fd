// SPDX-License-Identifier: Apache-2.0

// Package pages reads the pages of docs/, for specs that do what they say, and writes what programs have found into them.
package pages

import (
	"cmp"
	"fmt"
	"os"
	"regexp"
	"strings"
)

var (
	fenced      = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	heading     = regexp.MustCompile(`(?m)^(#+) (.+)$`)
	link        = regexp.MustCompile(`\]\([^)]*\)`)
	punctuation = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// Prose is a page without its blocks of code, which keep their lengths as blanks.
func Prose(page string) string {
	return fenced.ReplaceAllStringFunc(page, func(block string) string { return strings.Repeat(" ", len(block)) })
}

// Anchors are what GitHub makes of the headings of a page.
func Anchors(page string) []string {
	var out []string
	for _, h := range heading.FindAllStringSubmatch(Prose(page), -1) {
		out = append(out, anchor(h[2]))
	}
	return out
}

// Section returns what stands below the heading with an anchor, up to the next of its level or above, or nothing.
func Section(page, name string) string {
	headings := heading.FindAllStringSubmatchIndex(Prose(page), -1)
	for i, h := range headings {
		if anchor(page[h[4]:h[5]]) != name {
			continue
		}
		for _, next := range headings[i+1:] {
			if next[3]-next[2] <= h[3]-h[2] {
				return page[h[1]:next[0]]
			}
		}
		return page[h[1]:]
	}
	return ""
}

// Step is a sh block of a page, and what the text blocks behind it show of its output.
type Step struct{ Commands, Shown string }

// Steps returns the sh blocks of a page in their order.
func Steps(page string) (steps []Step) {
	fence := ""
	for line := range strings.Lines(page) {
		mark, isFence := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case fence != "" && isFence:
			fence = ""
		case isFence:
			if fence = cmp.Or(mark, "none"); fence == "sh" {
				steps = append(steps, Step{})
			}
		case fence == "sh":
			steps[len(steps)-1].Commands += line
		case fence == "text" && len(steps) > 0:
			steps[len(steps)-1].Shown += line
		}
	}
	return steps
}

// Fill puts a text between two marks of a page.
func Fill(file, begin, end, text string) error {
	page, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(page), begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		return fmt.Errorf("%s has no %q and %q", file, strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	return os.WriteFile(file, []byte(before+begin+text+end+after), 0o644)
}

// Table is rows in Markdown, of which the first is the head.
func Table(rows ...[]string) string {
	var out strings.Builder
	for n, row := range rows {
		fmt.Fprintf(&out, "| %s |\n", strings.Join(row, " | "))
		if n == 0 {
			fmt.Fprintf(&out, "|%s\n", strings.Repeat("---|", len(row)))
		}
	}
	return out.String()
}

func anchor(text string) string {
	plain := link.ReplaceAllString(strings.ToLower(text), "")
	return strings.ReplaceAll(punctuation.ReplaceAllString(plain, ""), " ", "-")
}
