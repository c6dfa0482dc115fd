// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
)

// settled is how long what is held is not told yet: the object that ends it may be on its way, and
// its times are in whole seconds.
const settled = 2 * time.Second

// NewCollector returns what tells Prometheus the account of a ledger; only the one that leads has one.
// Without localQueues, labels namespace and local_queue are empty.
func NewCollector(l *Ledger, localQueues bool) prometheus.Collector {
	return metrics.NewScraped(func(tell metrics.Tell) { l.collect(tell, localQueues) }, metrics.Ledger...)
}

func (l *Ledger) collect(tell metrics.Tell, localQueues bool) {
	if unsaved, tries := l.unsaved(); tries {
		tell(metrics.LedgerUnsaved, unsaved.Seconds())
	}
	account, leads := l.tell(localQueues)
	if !leads {
		return
	}
	for s, value := range account.holds {
		tell(metrics.HeldResources, value, s.values()...)
	}
	for s, value := range account.totals {
		if isPhase(s.is) {
			tell(metrics.QuotaSeconds, value, s.values()...)
		} else {
			tell(metrics.EndedSeconds, value, s.values()...)
		}
	}
	tell(metrics.LedgerBegan, float64(account.began.UnixMilli())/1000)
	if !account.saved.IsZero() {
		tell(metrics.LedgerSaved, float64(account.saved.UnixMilli())/1000)
	}
}

// withoutLocalQueues puts LocalQueues together where there are no labels of them.
func withoutLocalQueues(values map[slot]float64) map[slot]float64 {
	return put(values, map[slot]float64{}, func(s Series) Series {
		s.Namespace, s.LocalQueue = "", ""
		return s
	})
}

type account struct {
	// holds is what is held now, totals what was by phase and by outcome.
	holds, totals map[slot]float64
	began, saved  time.Time
}

// tell returns the account of the process that leads, by LocalQueue or without.
func (l *Ledger) tell(localQueues bool) (account, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.book == nil {
		return account{}, false
	}
	if !l.told.began.Equal(l.book.began) {
		l.told = account{began: l.book.began}
	}
	now := account{holds: l.book.Holds(), totals: l.book.Totals(time.Now().Add(-settled)), began: l.book.began, saved: l.saved}
	merged := l.book.merged
	if !localQueues {
		now.holds, now.totals = withoutLocalQueues(now.holds), withoutLocalQueues(now.totals)
		merged = withoutLocalQueues(ofOtherUsers(merged))
	}
	// What came from series that were put together was told as theirs.
	for s, seconds := range merged {
		if total, ok := now.totals[s]; ok {
			now.totals[s] = max(0, total-seconds)
		}
	}
	now.complete()
	// Counters do not go behind what this process has told before: Prometheus takes that for a reset. It may
	// be that an object tells late that a phase ended earlier.
	for s, told := range l.told.totals {
		now.totals[s] = max(now.totals[s], told)
	}
	l.told = now
	return now, true
}

// ofOtherUsers is what came from series of users. What came from those of queues and namespaces alone was, without labels of
// these, told as the same series.
func ofOtherUsers(merged map[slot]float64) map[slot]float64 {
	merged = maps.Clone(merged)
	maps.DeleteFunc(merged, func(s slot, _ float64) bool { return s.User != others })
	return merged
}

// unsaved returns for how long the process that leads can neither read nor save the account.
func (l *Ledger) unsaved() (_ time.Duration, tries bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.failing.IsZero() {
		return time.Since(l.failing), true
	}
	return 0, l.book != nil
}

// complete has every series that held something begin at 0 in all phases and outcomes: to
// Prometheus, a counter that appears with a value has not grown by that.
func (a account) complete() {
	series := map[Series]bool{}
	for _, of := range []map[slot]float64{a.holds, a.totals} {
		for s := range of {
			series[s.Series] = true
		}
	}
	for s := range series {
		for _, is := range slices.Concat(phases, outcomes) {
			a.totals[slot{s, is}] += 0
		}
	}
}
