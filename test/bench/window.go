// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"

	"github.com/kueue-trainer/kueue-trainer/test/bench/internal/usage"
)

// window is a span of time in which everything is counted.
type window struct {
	site   *site
	from   time.Time
	before map[string]usage.Usage
}

// open begins a window.
func (s *site) open() (*window, error) {
	// What was asked before does not count.
	if _, err := s.log.Count(s.namespace); err != nil {
		return nil, err
	}
	before, err := s.used()
	return &window{site: s, from: time.Now(), before: before}, err
}

// close waits until nothing changes any more, and gives what was used and asked for.
func (w *window) close(ctx context.Context) (Used, []Count, error) {
	if err := w.site.settled(ctx); err != nil {
		return nil, nil, err
	}
	used, err := w.site.usedSince(w.before)
	if err != nil {
		return nil, nil, err
	}
	counts, err := w.site.log.Count(w.site.namespace)
	return used, sorted(counts), err
}
