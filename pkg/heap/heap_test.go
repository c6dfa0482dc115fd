// SPDX-License-Identifier: Apache-2.0

package heap

import (
	"cmp"
	"context"
	"errors"
	"math"
	"runtime"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestSetLimit(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	type row struct {
		env         string
		limit, want int64
	}
	expect.Rows(t, map[string]row{
		"most of the container's limit is Go's": {env: "1000MiB", limit: 1000 << 20, want: 850 << 20},
		"no limit is set":                       {limit: math.MaxInt64},
		"the limit is turned off":               {env: "off", limit: math.MaxInt64},
	}, func(t *testing.T, tc row) {
		t.Setenv("GOMEMLIMIT", tc.env)
		debug.SetMemoryLimit(tc.limit)
		expect.Same(t, "Unexpected SetLimit", tc.want, SetLimit())
		expect.Same(t, "Unexpected limit of the runtime", cmp.Or(tc.want, tc.limit), debug.SetMemoryLimit(-1))
	})
}

func TestScarce(t *testing.T) {
	held := make([]byte, 64<<20)
	runtime.GC()
	expect.Rows(t, map[string]expect.Row[int64, bool]{
		"there is no limit":                   {},
		"the heap is far from the limit":      {In: 1 << 30},
		"the heap takes nearly all there is":  {In: 80 << 20, Want: true},
		"the heap is larger than it ought to": {In: 10 << 20, Want: true},
	}, func(t *testing.T, tc expect.Row[int64, bool]) {
		told := false
		scarce := Scarce(tc.In, func(scarce bool) { told = scarce })
		got := scarce()
		expect.That(t, got == tc.Want && told == tc.Want, "scarce = %t and told %t with %d bytes in use, want %t", got, told, inUse(), tc.Want)
	})
	runtime.KeepAlive(held)
}

func TestTight(t *testing.T) {
	type row struct {
		before, want bool
		share        float64
	}
	expect.Rows(t, map[string]row{
		"it gets tight":                       {share: 0.76, want: true},
		"it is not tight yet":                 {share: 0.74},
		"a little less does not change it":    {before: true, share: 0.70, want: true},
		"as much as before it got tight will": {before: true, share: 0.64},
	}, func(t *testing.T, tc row) {
		expect.Same(t, "Unexpected answer whether it is tight", tc.want, tight(tc.before, tc.share))
	})
}

func TestGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		scarce := false
		gate := NewGate(1, func() bool { return scarce })
		pass := func(ctx context.Context) func() { return expect.Must(gate.Pass(ctx))(t) }
		first, second := pass(t.Context()), pass(t.Context())
		scarce = true
		// Whoever came before is not counted.
		third := pass(t.Context())
		ctx, cancel := context.WithCancel(t.Context())
		passed := make(chan error)
		go func() {
			_, err := gate.Pass(ctx)
			passed <- err
		}()
		synctest.Wait()
		select {
		case err := <-passed:
			t.Fatalf("A second one passed while memory is scarce, error %v", err)
		default:
		}
		cancel()
		err := <-passed
		expect.That(t, errors.Is(err, context.Canceled), "Who gives up has error %v", err)
		third()
		pass(t.Context())()
		first()
		second()
	})
}

func TestPercentFor(t *testing.T) {
	const mib = 1 << 20
	expect.Answers(t, func(in uint64) int { return percentFor(in, 50, 32*mib) }, map[string]expect.Row[uint64, int]{
		"nothing is live yet":           {In: 0, Want: 800},
		"little is live":                {In: 16 * mib, Want: 200},
		"as much as the floor is worth": {In: 64 * mib, Want: 50},
		"much is live":                  {In: 300 * mib, Want: 50},
	})
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
