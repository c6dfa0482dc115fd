// SPDX-License-Identifier: Apache-2.0

// Package play is what the stories have in common: claims, and clusters of their own.
package play

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
)

// ErrInterrupted says that Ctrl-C ended a story.
var ErrInterrupted = errors.New("interrupted")

// Claim is a sentence about the cluster, and how it is checked.
type Claim struct {
	Text string
	// Check says what is otherwise.
	Check func() error
}

// FirstUntrue returns the first claim that does not hold and why, or "".
func FirstUntrue(claims []Claim) string {
	for _, c := range claims {
		if err := c.Check(); err != nil {
			return fmt.Sprintf("%s (%v)", c.Text, err)
		}
	}
	return ""
}

// Verify prints below a heading which claims came true.
func Verify(out io.Writer, paint show.Paint, heading string, claims ...Claim) error {
	fmt.Fprintln(out, heading)
	var untrue []string
	for _, c := range claims {
		mark, text := paint.Green("true  "), c.Text
		if err := c.Check(); err != nil {
			mark, text = paint.Red("UNTRUE"), fmt.Sprintf("%s: %v", c.Text, err)
			untrue = append(untrue, text)
		}
		fmt.Fprintf(out, "  %s  %s\n", mark, text)
	}
	if len(untrue) > 0 {
		return fmt.Errorf("the story did not come true:\n  %s", strings.Join(untrue, "\n  "))
	}
	return nil
}
