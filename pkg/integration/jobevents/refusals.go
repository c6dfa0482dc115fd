// SPDX-License-Identifier: Apache-2.0

package jobevents

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// refusalReasons are of the events in which a controller quotes why something could not be
// made or changed: Trainer's on the TrainJob, JobSet's on the JobSet, and the Job
// controller's on the Job. None of them says so in a status.
var refusalReasons = []string{
	"TrainJobResourcesCreationFailed",
	"JobCreationFailed", "HeadlessServiceCreationFailed", "PVCCreationFailed",
	"FailedCreate",
}

const (
	// A snapshot is read again after a second, or after ten times as long as it took to read: where a
	// namespace has very many events, to look for refusals is not what the API server is busy with.
	snapshotLasts    = time.Second
	snapshotRatio    = 10
	snapshotLastsMax = time.Minute

	// Tenants can make events, of more than a megabyte each. So many are in memory at a time, and so many, or so many
	// bytes, are read; one who makes more has their own jobs queue without being told of refusals.
	chunkSize = 25
	maxChunks = 100
	maxBytes  = 8 << 20
)

// Refusals finds what controllers said of what they could not make. To read the events of a
// namespace the API server has to look at all of them, so they are read for all objects of a kind
// at a time.
type Refusals struct {
	live client.Reader

	mu      sync.Mutex
	entries map[namespacedKind]*entry
}

// namespacedKind is where objects of a kind are.
type namespacedKind struct{ namespace, kind string }

// entry has what was read last of a kind.
type entry struct {
	// snapshot counts until next, which is when to read again.
	snapshot *snapshot
	next     time.Time
	// reading is since when somebody reads; zero: nobody does.
	reading time.Time
}

// snapshot is what the events about a kind said at a time. Once it is read it does not change.
type snapshot struct {
	read time.Time
	// last is the last refusal by the object that it is about.
	last map[types.UID]refusal
}

type refusal struct {
	note string
	at   time.Time
}

// NewRefusals returns those that live, a reader of the API server itself, finds.
func NewRefusals(live client.Reader) *Refusals {
	return &Refusals{live: live, entries: map[namespacedKind]*entry{}}
}

// Last returns the last refusal told since a time about objects of a kind, or "". What was told in
// the last minute may not be known, unless it was told before asOf, by our own clock. Where that
// cannot be said yet, Last returns a time after which to ask again.
func (r *Refusals) Last(ctx context.Context, namespace, kind string, asked []types.UID, since, asOf time.Time) (note string, again time.Duration, err error) {
	if len(asked) == 0 {
		return "", 0, nil
	}
	of := namespacedKind{namespace, kind}
	found, again := r.known(of, asOf)
	if found == nil && again == 0 {
		found, err = r.read(ctx, of)
	}
	if found == nil || err != nil {
		return "", again, err
	}
	return found.lastOf(asked, since), 0, nil
}

// known returns a snapshot that is new enough, or the time after which to ask again, or neither: then
// it is the caller's to read.
func (r *Refusals) known(of namespacedKind, asOf time.Time) (*snapshot, time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.entries[of] == nil {
		r.entries[of] = &entry{}
	}
	s, now := r.entries[of], time.Now()
	waits := s.next.Sub(now)
	switch {
	case waits > 0 && s.snapshot != nil && !s.snapshot.read.Before(asOf):
		return s.snapshot, 0
	case waits > 0:
		return nil, waits
	case !s.reading.IsZero():
		// The longer it takes, the less a moment matters to the many who wait for it.
		return nil, max(snapshotLasts, now.Sub(s.reading))
	}
	s.reading = now
	return nil, 0
}

// read reads a snapshot for all who ask until it is stale. An attempt that fails is paced like others.
func (r *Refusals) read(ctx context.Context, of namespacedKind) (read *snapshot, err error) {
	began := time.Now()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		now := time.Now()
		r.entries[of] = &entry{snapshot: read, next: now.Add(min(max(snapshotLasts, snapshotRatio*now.Sub(began)), snapshotLastsMax))}
		maps.DeleteFunc(r.entries, func(_ namespacedKind, s *entry) bool {
			return s.reading.IsZero() && now.After(s.next.Add(snapshotLastsMax))
		})
	}()
	found := newSnapshot(began)
	var list eventsv1.EventList
	size := 0
	for range maxChunks {
		err = r.live.List(ctx, &list, client.InNamespace(of.namespace), client.Limit(chunkSize), client.Continue(list.Continue),
			client.MatchingFields{"type": corev1.EventTypeWarning, "regarding.kind": of.kind})
		if apierrors.IsForbidden(err) {
			// A role of an older release: what is not told is silence.
			return found, nil
		}
		if err != nil {
			return nil, fmt.Errorf("listing the events of namespace %s about %s: %w", of.namespace, of.kind, err)
		}
		found.add(list.Items)
		if size += list.Size(); list.Continue == "" || size > maxBytes {
			break
		}
	}
	return found, nil
}

func newSnapshot(read time.Time) *snapshot {
	return &snapshot{read: read, last: map[types.UID]refusal{}}
}

func (p *snapshot) add(events []eventsv1.Event) {
	for i := range events {
		ev := &events[i]
		if slices.Contains(refusalReasons, ev.Reason) && toldAt(ev).After(p.last[ev.Regarding.UID].at) {
			p.last[ev.Regarding.UID] = refusal{ev.Note, toldAt(ev)}
		}
	}
}

// lastOf returns the last refusal told since a time about any of some objects, or "".
func (p *snapshot) lastOf(asked []types.UID, since time.Time) string {
	note := ""
	for _, uid := range asked {
		if told, found := p.last[uid]; found && told.at.After(since) {
			note, since = told.note, told.at
		}
	}
	return note
}

// toldAt returns when an event was last told. Recorders of the old kind count in one place,
// those of the new kind in another.
func toldAt(ev *eventsv1.Event) time.Time {
	at := ev.CreationTimestamp.Time
	times := []time.Time{ev.EventTime.Time, ev.DeprecatedLastTimestamp.Time}
	if ev.Series != nil {
		times = append(times, ev.Series.LastObservedTime.Time)
	}
	for _, t := range times {
		if t.After(at) {
			at = t
		}
	}
	return at
}
