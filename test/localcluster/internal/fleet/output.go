// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"bytes"
	"fmt"
	"io"
	"sync"
)

// prefixed says of each line which cluster it is about. A cluster writes whole lines, and those of
// several go to one writer.
type prefixed struct {
	mu     *sync.Mutex
	to     io.Writer
	prefix string
}

// Write implements io.Writer.
func (w *prefixed) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for line := range bytes.Lines(p) {
		if _, err := fmt.Fprintf(w.to, "%-8s %s", w.prefix, line); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}
