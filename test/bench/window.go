// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"

	"github.com/kueue-trainer/kueue-trainer/test/attempt"
)

// window is a span of time in which everything is counted.
type window struct {
	site   *site
	from   time.Time
	before Used
}

// open begins a window.
func (s *site) open() *window {
	// What was asked before does not count.
	attempt.Must(s.log.Count(s.namespace))
	before := s.used()
	return &window{site: s, from: time.Now(), before: before}
}

// close waits until nothing changes any more, and gives what was used and asked for.
func (w *window) close(ctx context.Context) (Used, []Count) {
	w.site.settled(ctx)
	used := w.site.used()
	for name, u := range used {
		used[name] = u.Since(w.before[name])
	}
	return used, sorted(attempt.Must(w.site.log.Count(w.site.namespace)))
}
