// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
)

const (
	// format is the version of what is saved.
	format = 1
	// maxSize is what a checkpoint may have; the API server takes objects of 1 MiB.
	maxSize = 900 << 10
)

// errNewer is why a checkpoint must not be replaced: who wrote it may read it again.
var errNewer = errors.New("it is that of a newer release")

// Saved is a checkpoint: the book as it is saved, for the next leader and for those who only look.
type Saved struct {
	Format int `json:"format"`
	// Writer is the process that saved it.
	Writer string `json:"writer"`
	// Began is when the book began, Saved when it was saved.
	Began time.Time `json:"began"`
	Saved time.Time `json:"saved"`
	Held  []Total   `json:"held"`
	Ended []Total   `json:"ended"`
	// Merged is what of both came from series that were put together.
	Merged []Total    `json:"merged,omitempty"`
	Open   []*Holding `json:"open"`
	// Closed are the holdings that ended not long before, Counted is the time up to which all others that ended are in the
	// totals; saves of older releases have none.
	Closed  []closing `json:"closed"`
	Counted time.Time `json:"counted,omitzero"`
}

// checkpoint returns a copy of what is to be saved.
func (b *Book) checkpoint(writer string, now time.Time) Saved {
	c := Saved{Format: format, Writer: writer, Began: b.began, Saved: now, Merged: sorted(b.merged), Counted: b.assumed}
	c.set(b.totals)
	for _, uid := range slices.Sorted(maps.Keys(b.open)) {
		h := *b.open[uid]
		h.Spans = slices.Clone(h.Spans)
		c.Open = append(c.Open, &h)
	}
	for _, uid := range slices.Sorted(maps.Keys(b.closed)) {
		switch closed := b.closed[uid]; {
		case later(closed.Ended, closed.Gone).After(now.Add(-remembered)):
			c.Closed = append(c.Closed, closed)
		case closed.Gone.IsZero():
			// Its Workload said when: that is what it will say to clocks that are behind, too.
			c.Counted = later(c.Counted, closed.Ended)
		}
	}
	return c
}

func (c *Saved) set(totals map[slot]float64) {
	c.Held, c.Ended = []Total{}, []Total{}
	for _, t := range sorted(totals) {
		if isPhase(t.Is) {
			c.Held = append(c.Held, t)
		} else {
			c.Ended = append(c.Ended, t)
		}
	}
}

func (c *Saved) totals() []Total { return slices.Concat(c.Held, c.Ended) }

// book returns the book that was saved. The clock of who saved it may be ahead.
func (c Saved) book(now time.Time) *Book {
	b := NewBook(c.Began)
	b.assumed = cmp.Or(c.Counted, later(c.Began, earlier(c.Saved, now).Add(-remembered)))
	b.merged = slots(c.Merged)
	b.whole = wholes(b.merged)
	for _, t := range c.totals() {
		b.totals[slot{t.Series, t.Is}] = t.Seconds
		b.tellsApart(t.Series)
	}
	for _, h := range c.Open {
		b.open[h.UID] = h
	}
	for _, closed := range c.Closed {
		b.closed[closed.UID] = closed
	}
	return b
}

// encode returns a checkpoint as it is stored, and what it put together for that; nil: nothing. Where it is too large,
// Workloads that run have to tell themselves what they hold: only what ends just now has to be saved. Where the totals are
// too large, series are put together: tenants may make up some, and others come and go; neither shall stop the account.
func (c Saved) encode() ([]byte, together, error) {
	data, err := compress(c)
	if err != nil || len(data) <= maxSize {
		return data, nil, err
	}
	smaller := c.smaller()
	c.Open = slices.DeleteFunc(slices.Clone(c.Open), func(h *Holding) bool { return h.last().Phase != metrics.PhaseStopping })
	data, err = compress(c)
	var which together
	for i := 0; i < len(smaller) && err == nil && len(data) > maxSize; i++ {
		which = smaller[i]
		c.put(which)
		data, err = compress(c)
	}
	if err == nil && len(data) > maxSize {
		err = fmt.Errorf("the ledger has %d totals and %d holdings that end just now, %d bytes where %d fit", len(c.Held)+len(c.Ended), len(c.Open), len(data), maxSize)
	}
	return data, which, err
}

func compress(c any) ([]byte, error) {
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	if err := json.NewEncoder(zip).Encode(c); err != nil {
		return nil, err
	}
	err := zip.Close()
	return out.Bytes(), err
}

func decode(data []byte) (Saved, error) {
	var c Saved
	zip, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return c, err
	}
	text, err := io.ReadAll(zip)
	if err != nil {
		return c, err
	}
	// Of a newer one, nothing else needs to look as it does here.
	var version struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(text, &version); err != nil {
		return c, err
	}
	if version.Format > format {
		return c, fmt.Errorf("%w: it has format %d, this one reads %d", errNewer, version.Format, format)
	}
	if err := json.Unmarshal(text, &c); err != nil {
		return c, err
	}
	return c, c.validate()
}

func (c Saved) validate() error {
	if c.Format != format {
		return fmt.Errorf("it has format %d, this release reads %d", c.Format, format)
	}
	seen := map[types.UID]bool{}
	for _, h := range c.Open {
		if h == nil || len(h.Spans) == 0 || h.UID == "" || seen[h.UID] {
			return errors.New("it has a holding without a beginning, or twice")
		}
		seen[h.UID] = true
	}
	return nil
}

// LoadSaved reads what a manager has saved in its namespace.
func LoadSaved(ctx context.Context, c client.Reader, namespace string) (*Saved, error) {
	var cm corev1.ConfigMap
	if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: ConfigMapName}, &cm); err != nil {
		return nil, err
	}
	return savedIn(&cm)
}

// Totals returns what the account comes to now, by phase and by outcome, with what Workloads tell since it was saved. there
// is whether a Workload that the account knows is there; readings are of Workloads read after the account.
func (c *Saved) Totals(readings []Reading, there func(types.UID) bool, now time.Time) []Total {
	b := c.book(now)
	b.catchUp(readings, there, nil, c.Saved, now)
	return sorted(b.Totals(now))
}

// Prove returns what readings prove of a time by themselves, without anything that was saved: by
// phase, and of runs that ended in it, by outcome.
func Prove(readings []Reading, from, to time.Time) []Total {
	b := NewBook(from)
	for _, r := range readings {
		b.Observe(r, to, time.Time{})
	}
	return sorted(b.Totals(to))
}

// catchUp takes note of what Workloads tell since a time until which the book was kept, and ends what it has of those
// that are gone since without a word: at least until then, and until they left, what the book says was true. The clock of
// who kept it may be ahead.
func (b *Book) catchUp(readings []Reading, there func(types.UID) bool, left map[types.UID]time.Time, known, now time.Time) {
	known = earlier(known, now)
	for _, r := range readings {
		b.Observe(r, now, known)
	}
	for uid, h := range b.open {
		if !there(uid) {
			b.Gone(uid, later(left[uid], later(known, h.last().At)), now)
		}
	}
}
