// SPDX-License-Identifier: Apache-2.0

package heap

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// Pace has garbage collected when the heap has grown by a percentage of what is live in it, but not before it has grown by
// floor bytes: where little is live, a collection for every few megabytes is most of what a collector costs.
func Pace(percent int, floor uint64) {
	pace := func() { debug.SetGCPercent(percentFor(live(), percent, floor)) }
	pace()
	eachCollection(pace)
}

// percentFor returns the percentage by which a heap may grow of which so many bytes are live.
func percentFor(live uint64, percent int, floor uint64) int {
	return max(percent, int(100*floor/max(live, minLive)))
}

// minLive is what Go takes for live at least: below 4 MiB it does not collect.
const minLive = 4 << 20

func live() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// eachCollection calls a function after each garbage collection, which finalizes what nobody holds.
func eachCollection(call func()) {
	// Smaller ones share a block, which is collected with the last of them.
	type collected struct{ _ [16]byte }
	var again func(*collected)
	again = func(c *collected) {
		call()
		runtime.SetFinalizer(c, again)
	}
	runtime.SetFinalizer(&collected{}, again)
}
