// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"bytes"
	"fmt"
	"io"
	"sync"
)

// lines lets several clusters write to one writer.
type lines struct {
	mu sync.Mutex
	to io.Writer
}

// Write implements io.Writer.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.to.Write(p)
}

// prefixed says of each line which cluster it is about. A cluster writes whole lines.
type prefixed struct {
	to     io.Writer
	prefix string
}

// Write implements io.Writer.
func (w *prefixed) Write(p []byte) (int, error) {
	var out bytes.Buffer
	for line := range bytes.Lines(p) {
		fmt.Fprintf(&out, "%-8s %s", w.prefix, line)
	}
	if _, err := w.to.Write(out.Bytes()); err != nil {
		return 0, err
	}
	return len(p), nil
}
