// SPDX-License-Identifier: Apache-2.0

package show

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// Progress is a bar on a terminal, for what takes longer than two seconds. Elsewhere there is none.
type Progress struct {
	out    io.Writer
	what   string
	began  time.Time
	shown  time.Time
	silent bool
}

// NewProgress returns one that says what is done.
func NewProgress(out io.Writer, what string) *Progress {
	return &Progress{out: Cursor(out), what: what, began: time.Now(), silent: !Terminal(out)}
}

// At shows which share is done.
func (p *Progress) At(share float64) {
	const patience, often, width = 2 * time.Second, 200 * time.Millisecond, 40
	if p.silent || time.Since(p.began) < patience || time.Since(p.shown) < often {
		return
	}
	p.shown = time.Now()
	full := int(min(1, max(0, share)) * width)
	fmt.Fprintf(p.out, "\r%s [%s%s] %3.0f %%", p.what, strings.Repeat("=", full), strings.Repeat(" ", width-full), 100*share)
}

// Done takes the bar away.
func (p *Progress) Done() {
	if !p.shown.IsZero() {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}
