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
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
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

// ReportingController is the source of the manager's events.
const ReportingController = "kueue-trainer"

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

// entry is what the events about a kind said when they were read last. It counts until next, which is when to read again.
type entry struct {
	read, next time.Time
	// reading is since when somebody reads; zero: nobody does.
	reading time.Time
	// last is the last refusal by the object that it is about; nil: nothing was read. Once it is read it does not change.
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
	last, again := r.known(of, asOf)
	if last == nil && again == 0 {
		last, err = r.read(ctx, of)
	}
	for _, uid := range asked {
		if told := last[uid]; told.at.After(since) {
			note, since = told.note, told.at
		}
	}
	return note, again, err
}

// known returns what was read, if that is new enough, or the time after which to ask again, or neither: then
// it is the caller's to read.
func (r *Refusals) known(of namespacedKind, asOf time.Time) (map[types.UID]refusal, time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.entries[of] == nil {
		r.entries[of] = &entry{}
	}
	s, now := r.entries[of], time.Now()
	waits := s.next.Sub(now)
	switch {
	case waits > 0 && s.last != nil && !s.read.Before(asOf):
		return s.last, 0
	case waits > 0:
		return nil, waits
	case !s.reading.IsZero():
		// The longer it takes, the less a moment matters to the many who wait for it.
		return nil, max(snapshotLasts, now.Sub(s.reading))
	}
	s.reading = now
	return nil, 0
}

// read reads the events for all who ask until that is stale. An attempt that fails is paced like others.
func (r *Refusals) read(ctx context.Context, of namespacedKind) (last map[types.UID]refusal, err error) {
	began := time.Now()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		now := time.Now()
		r.entries[of] = &entry{read: began, last: last, next: now.Add(min(max(snapshotLasts, snapshotRatio*now.Sub(began)), snapshotLastsMax))}
		maps.DeleteFunc(r.entries, func(_ namespacedKind, s *entry) bool {
			return s.reading.IsZero() && now.After(s.next.Add(snapshotLastsMax))
		})
	}()
	found := map[types.UID]refusal{}
	var list eventsv1.EventList
	size := 0
	for range maxChunks {
		err = r.live.List(ctx, &list, client.InNamespace(of.namespace), client.Limit(chunkSize), client.Continue(list.Continue),
			client.MatchingFieldsSelector{Selector: ofOthers(of.kind)})
		if apierrors.IsForbidden(err) {
			// A role of an older release: what is not told is silence.
			return found, nil
		}
		if err != nil {
			return nil, fmt.Errorf("listing the events of namespace %s about %s: %w", of.namespace, of.kind, err)
		}
		addRefusals(found, list.Items)
		if size += list.Size(); list.Continue == "" || size > maxBytes {
			break
		}
	}
	return found, nil
}

// ofOthers selects warnings about objects of a kind. Those of the manager itself, which may be as many as TrainJobs that wait,
// would use up what is read.
func ofOthers(kind string) fields.Selector {
	return fields.AndSelectors(fields.Set{"type": corev1.EventTypeWarning, "regarding.kind": kind}.AsSelector(),
		fields.OneTermNotEqualSelector("reportingController", ReportingController))
}

func addRefusals(last map[types.UID]refusal, events []eventsv1.Event) {
	for i := range events {
		ev := &events[i]
		if slices.Contains(refusalReasons, ev.Reason) && toldAt(ev).After(last[ev.Regarding.UID].at) {
			last[ev.Regarding.UID] = refusal{ev.Note, toldAt(ev)}
		}
	}
}

// toldAt returns when an event was last told. Recorders of the old kind count in one place,
// those of the new kind in another.
func toldAt(ev *eventsv1.Event) time.Time {
	return slices.MaxFunc([]time.Time{
		ev.CreationTimestamp.Time, ev.EventTime.Time, ev.DeprecatedLastTimestamp.Time, ptr.Deref(ev.Series, eventsv1.EventSeries{}).LastObservedTime.Time,
	}, time.Time.Compare)
}
