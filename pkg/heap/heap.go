// SPDX-License-Identifier: Apache-2.0

// Package heap keeps the manager within the memory that its container has. Its caches grow with
// the cluster, and a process that reaches its limit is killed: near it, the manager does one thing
// after the other instead, so that the little that is left is used once at a time.
package heap

import (
	"context"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

const (
	// goShare is the share of the container's memory that is Go's. The rest is for what the
	// runtime does not count, the kernel's buffers of connections among it, and for pages of the
	// program, which are read again and again where there is no room for them.
	goShare = 0.85
	// scarceShare is the share of Go's memory from which on what is in use leaves the collector
	// too little room; below plentyShare it has enough again.
	scarceShare = 0.75
	plentyShare = 0.65
	// readingLasts is how long one reading of the heap will do.
	readingLasts = 100 * time.Millisecond
)

// SetLimit lets Go's runtime have most of the limit that GOMEMLIMIT names, which is that of the
// container. It returns Go's share in bytes, 0 without a limit.
func SetLimit() int64 {
	limit := debug.SetMemoryLimit(-1)
	if os.Getenv("GOMEMLIMIT") == "" || limit == math.MaxInt64 {
		return 0
	}
	share := int64(goShare * float64(limit))
	debug.SetMemoryLimit(share)
	return share
}

// Scarce returns what reports whether the heap that is in use leaves too little of limit, which is Go's share in bytes.
// Without a limit it never does. It may be called by many at once, and calls changed whenever its answer is another one.
func Scarce(limit int64, changed func(scarce bool)) func() bool {
	if limit <= 0 {
		return func() bool { return false }
	}
	var mu sync.Mutex
	var read time.Time
	var scarce bool
	return func() bool {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(read) >= readingLasts {
			read = time.Now()
			if now := tight(scarce, float64(inUse())/float64(limit)); now != scarce {
				scarce = now
				changed(scarce)
			}
		}
		return scarce
	}
}

// tight reports whether a share of Go's memory in use is too much, for one that was so before or not.
func tight(before bool, share float64) bool {
	if before {
		return share > plentyShare
	}
	return share > scarceShare
}

// inUse returns the bytes that the last garbage collection left, and what Go needs beside its heap:
// stacks, and what describes the heap.
func inUse() uint64 {
	names := []string{
		"/gc/heap/live:bytes", "/memory/classes/total:bytes", "/memory/classes/heap/objects:bytes",
		"/memory/classes/heap/free:bytes", "/memory/classes/heap/released:bytes", "/memory/classes/heap/unused:bytes",
	}
	samples := make([]metrics.Sample, len(names))
	for i, name := range names {
		samples[i].Name = name
	}
	metrics.Read(samples)
	live, beside := samples[0].Value.Uint64(), samples[1].Value.Uint64()
	for _, heap := range samples[2:] {
		beside -= heap.Value.Uint64()
	}
	return live + beside
}

// Gate lets everybody pass while memory is plenty, and few at a time while it is scarce.
type Gate struct {
	scarce func() bool
	places chan struct{}
}

// NewGate returns a Gate that lets so many pass at a time while scarce reports true.
func NewGate(places int, scarce func() bool) *Gate {
	return &Gate{scarce: scarce, places: make(chan struct{}, places)}
}

// Pass returns when the caller may go on, who calls leave when done, or the error of ctx.
func (g *Gate) Pass(ctx context.Context) (leave func(), err error) {
	if !g.scarce() {
		return func() {}, nil
	}
	select {
	case g.places <- struct{}{}:
		return func() { <-g.places }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Pace has garbage collected when the heap has grown by a percentage of what is live in it, but not before it has grown by
// floor bytes: where little is live, a collection for every few megabytes is most of what a collector costs.
func Pace(percent int, floor uint64) {
	pace := func() { debug.SetGCPercent(percentFor(live(), percent, floor)) }
	pace()
	eachCollection(pace)
}

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
