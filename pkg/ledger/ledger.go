// SPDX-License-Identifier: Apache-2.0

// Package ledger keeps account of the quota that TrainJobs hold, in resource seconds, by what they
// do with it and what becomes of it.
//
// What counts are the times that stand in the objects: reading.go says what one version of a Workload proves, holding.go
// puts versions together, book.go has the sums; all three are pure. What the objects do not tell any more, because quota was
// given back or a Workload is gone, is saved in a ConfigMap soon after (checkpoint.go, store.go), so that a restart or
// another leader counts on from there, and so may others who read it. together.go puts series together where they are too
// many. ledger.go is the book of this process, follow.go lets it follow the caches, collector.go tells Prometheus.
package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
)

const (
	// savePeriod is how long a change waits to be saved, unless a run ends: objects soon forget what it used. From the end
	// of a save to the next one it takes soonest at least, and idleRatio times as long as the save took, but not longer than
	// latest. A save of 10,000 holdings takes an eighth of a second to make, and has 200 KiB.
	savePeriod = time.Minute
	soonest    = time.Second
	latest     = 2500 * time.Millisecond
	idleRatio  = 10
	// refreshPeriod is how old a save may be while something is held, though nothing changes: of what is gone when the next
	// leader looks, it counts until then.
	refreshPeriod = 10 * time.Minute
	// retryPeriod is how long after a failed save the next one begins at the latest.
	retryPeriod = 10 * time.Second
	// saveTimeout bounds a request, also the last save of a manager that stops.
	saveTimeout = 5 * time.Second
)

// Options are what a Ledger works with.
type Options struct {
	// Namespace is where the ConfigMap is.
	Namespace string
	// Live reads from the API server, Writer writes.
	Live   client.Reader
	Writer client.Writer
	// Cached reads the Workloads.
	Cached client.Reader
	// Facts returns what is known beside a Workload.
	Facts    func(context.Context, *kueue.Workload) Facts
	Recorder events.EventRecorder
	Log      logr.Logger
}

// Ledger is the account of the process that leads. The others' is empty.
type Ledger struct {
	options Options
	store   *store

	mu sync.Mutex
	// book is nil while this process does not lead, or does not know yet what was saved.
	book  *Book
	saved time.Time
	// failing is since when the book can neither be read nor saved; zero: the last attempt succeeded.
	failing time.Time
	// noted is what the book was told last, by Workload: most looks at a job bring nothing new.
	noted map[types.UID]noted
	// left is when Workloads were about to be gone that are not yet; nil where there will be no book.
	left map[types.UID]time.Time
	// kept is the count of the book's changes up to which all is saved.
	kept uint64
	// wanted has something where the book is to be saved soon.
	wanted chan struct{}
	// told is what Prometheus was told last.
	told account
}

type noted struct {
	version string
	facts   Facts
}

// New returns a ledger, which does nothing before it is started.
func New(options Options) *Ledger {
	return &Ledger{
		options: options,
		store: &store{
			reader: options.Live, writer: options.Writer, self: string(uuid.NewUUID()),
			key: types.NamespacedName{Namespace: options.Namespace, Name: ConfigMapName},
		},
		left:   map[types.UID]time.Time{},
		wanted: make(chan struct{}, 1),
	}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (l *Ledger) NeedLeaderElection() bool { return true }

// Start implements manager.Runnable: it takes the account over, and saves it until ctx ends.
func (l *Ledger) Start(ctx context.Context) error {
	if !l.eventuallyTakeOver(ctx) {
		return nil
	}
	timer := time.NewTimer(savePeriod)
	defer timer.Stop()
	// next is when the next save may begin.
	var next time.Time
	for {
		select {
		case <-ctx.Done():
			// Whoever leads next has less to find out.
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTimeout)
			defer cancel()
			// A save that was under way may have been written, though it was cancelled here: then the first is refused.
			if err := l.save(last, 0); err != nil && !errors.Is(err, errOvertaken) {
				_ = l.save(last, 0)
			}
			return nil
		case <-l.wanted:
			if !sleep(ctx, time.Until(next)) {
				continue
			}
		case <-timer.C:
		}
		began := time.Now()
		err := l.save(ctx, refreshPeriod)
		next = time.Now().Add(pause(time.Since(began)))
		if errors.Is(err, errOvertaken) && !l.eventuallyTakeOver(ctx) {
			return nil
		}
		timer.Reset(savePeriod)
		if err != nil {
			timer.Reset(retryPeriod)
		}
	}
}

// pause returns how long after the end of a save the next one may begin.
func pause(took time.Duration) time.Duration { return min(max(soonest, idleRatio*took), latest) }

// sleep waits, and reports whether ctx goes on.
func sleep(ctx context.Context, for_ time.Duration) bool {
	select {
	case <-ctx.Done():
	case <-time.After(for_):
	}
	return ctx.Err() == nil
}

// eventuallyTakeOver tries until it succeeds; false means that ctx ended.
func (l *Ledger) eventuallyTakeOver(ctx context.Context) bool {
	for {
		err := l.takeOver(ctx)
		if err == nil {
			return true
		}
		if errors.Is(err, errNewer) {
			l.leaveAlone(ctx, err)
			return false
		}
		if ctx.Err() == nil {
			l.options.Log.Error(err, "Could not read the ledger of resource seconds, so it is tried again")
			l.mu.Lock()
			l.failing = cmp.Or(l.failing, time.Now())
			l.mu.Unlock()
		}
		if !sleep(ctx, soonest) {
			return false
		}
	}
}

// leaveAlone keeps no account until ctx ends.
func (l *Ledger) leaveAlone(ctx context.Context, newer error) {
	l.options.Log.Error(newer, "Could not keep the ledger of resource seconds, which a newer release has saved")
	l.event("LedgerNewer", "No account is kept of resource seconds, since a newer release has saved the ledger in another format: "+
		"install that again, or delete the ConfigMap and restart the manager to begin at 0")
	l.mu.Lock()
	l.left = nil
	l.failing = cmp.Or(l.failing, time.Now())
	l.mu.Unlock()
	<-ctx.Done()
}

// takeOver makes this process's book of what was saved and of what the Workloads of the cache prove since.
func (l *Ledger) takeOver(ctx context.Context) error {
	l.mu.Lock()
	l.book = nil
	l.mu.Unlock()
	saved, unreadable, err := l.store.load(ctx)
	if err != nil {
		return err
	}
	fresh := saved == nil
	if fresh {
		saved = &Saved{}
	}
	if err := l.seen(ctx, saved.Open); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	known, book := saved.Saved, saved.book(now)
	if fresh {
		l.tellBeginning(unreadable)
		known, book = now, NewBook(now)
		// This beginning has to be known to whoever leads next.
		book.changes++
	}
	l.kept, l.saved = 0, saved.Saved
	workloads, err := l.cached(ctx)
	if err != nil {
		return err
	}
	var readings []Reading
	for _, wl := range workloads {
		if book.concerns(wl) {
			readings = append(readings, Read(wl, l.options.Facts(ctx, wl)))
		}
	}
	book.catchUp(readings, func(uid types.UID) bool { return workloads[uid] != nil }, l.left, known, now)
	clear(l.left)
	l.book, l.noted, l.failing = book, map[types.UID]noted{}, time.Time{}
	if fresh || book.forgotten() {
		l.want()
	}
	return nil
}

func (l *Ledger) cached(ctx context.Context) (map[types.UID]*kueue.Workload, error) {
	var list kueue.WorkloadList
	err := l.options.Cached.List(ctx, &list, client.UnsafeDisableDeepCopy)
	return kueuelib.Index(list.Items, func(wl *kueue.Workload) types.UID { return wl.UID }), err
}

// seen returns an error unless the cache has the Workloads of all holdings that are still there:
// one that it does not have yet is not gone.
func (l *Ledger) seen(ctx context.Context, open []*Holding) error {
	workloads, err := l.cached(ctx)
	if err != nil {
		return err
	}
	for _, h := range open {
		if workloads[h.UID] != nil {
			continue
		}
		exists, err := l.exists(ctx, h)
		if err != nil {
			return fmt.Errorf("looking for Workload %s: %w", h.Name, err)
		}
		if exists {
			return fmt.Errorf("the cache does not have Workload %s yet", h.Name)
		}
	}
	return nil
}

func (l *Ledger) exists(ctx context.Context, h *Holding) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, saveTimeout)
	defer cancel()
	wl := &metav1.PartialObjectMetadata{}
	wl.SetGroupVersionKind(kueue.SchemeGroupVersion.WithKind("Workload"))
	err := l.options.Live.Get(ctx, h.Name, wl)
	return err == nil && wl.UID == h.UID, client.IgnoreNotFound(err)
}

// tellBeginning tells people that the account begins at nothing.
func (l *Ledger) tellBeginning(unreadable error) {
	if unreadable == nil {
		l.options.Log.Info("Began the ledger of resource seconds", "configMap", klog.KRef(l.store.key.Namespace, l.store.key.Name))
		return
	}
	l.options.Log.Error(unreadable, "Could not read the saved ledger of resource seconds, so it begins again at 0")
	l.event("LedgerUnreadable", fmt.Sprintf("The ledger of resource seconds cannot be read and begins again at 0; a copy is in ConfigMap %s: %v", unreadableName, unreadable))
}

// event tells people what became of the ConfigMap when it was read.
func (l *Ledger) event(reason, note string) {
	cm := &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Namespace: l.store.key.Namespace, Name: l.store.key.Name}}
	l.options.Recorder.Eventf(cm, nil, corev1.EventTypeWarning, reason, "Load", "%s", note)
}

// putTogether has the book, and what is told of it, be what was saved. It is for who holds the lock.
func (l *Ledger) putTogether(which together) {
	if which == nil || l.book == nil {
		return
	}
	// What came since was not told yet.
	l.book.put(which, time.Now().Add(-settled))
	// Without a label of its LocalQueue, a series is that of those who are left, too.
	maps.DeleteFunc(l.told.totals, func(s slot, _ float64) bool { return s.LocalQueue != "" && which(s.Series) != s.Series })
}

func (l *Ledger) want() {
	select {
	case l.wanted <- struct{}{}:
	default:
	}
}

// save saves what has changed or, while something is held, what was saved an age ago.
func (l *Ledger) save(ctx context.Context, age time.Duration) error {
	l.mu.Lock()
	now := time.Now()
	if l.book != nil {
		l.book.prune(now)
	}
	if l.book == nil || l.book.changes == l.kept && (len(l.book.open) == 0 || now.Sub(l.saved) < age) {
		l.mu.Unlock()
		return nil
	}
	upTo := l.book.changes
	copied := l.book.checkpoint(l.store.self, now)
	l.mu.Unlock()

	data, which, err := copied.encode()
	if err == nil {
		err = l.store.save(ctx, data)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		l.saved, l.kept, l.failing = now, max(l.kept, upTo), time.Time{}
		l.putTogether(which)
	} else if !errors.Is(err, context.Canceled) {
		l.options.Log.Error(err, "Could not save the ledger of resource seconds")
		l.failing = cmp.Or(l.failing, now)
	}
	return err
}
