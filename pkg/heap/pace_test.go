// SPDX-License-Identifier: Apache-2.0

package heap

import (
	"runtime"
	"testing"
	"time"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestPercentFor(t *testing.T) {
	const mib = 1 << 20
	tests := map[string]struct {
		live uint64
		want int
	}{
		"nothing is live yet":           {live: 0, want: 800},
		"little is live":                {live: 16 * mib, want: 200},
		"as much as the floor is worth": {live: 64 * mib, want: 50},
		"much is live":                  {live: 300 * mib, want: 50},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			expect.Same(t, "Unexpected percentage", tc.want, percentFor(tc.live, 50, 32*mib))
		})
	}
}

func TestEachCollection(t *testing.T) {
	calls := make(chan struct{}, 8)
	eachCollection(func() { calls <- struct{}{} })
	for range 3 {
		runtime.GC()
		select {
		case <-calls:
		case <-time.After(10 * time.Second):
			t.Fatal("not called after a collection")
		}
	}
}
