// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"maps"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
)

// settled is how long what is held is not told yet: the object that ends it may be on its way, and
// its times are in whole seconds.
const settled = 2 * time.Second

// Collector tells Prometheus what a ledger has. Only the one that leads has something.
type Collector struct {
	ledger                             *Ledger
	localQueues                        bool
	held, seconds, ended, began, saved *prometheus.Desc
	unsaved                            *prometheus.Desc
}

var _ prometheus.Collector = (*Collector)(nil)

// NewCollector returns the collector of a ledger. Without localQueues, labels namespace and
// local_queue are empty.
func NewCollector(l *Ledger, localQueues bool) *Collector {
	desc := func(m metrics.Metric) *prometheus.Desc { return prometheus.NewDesc(m.Name, m.Help+".", m.Labels, nil) }
	return &Collector{
		ledger: l, localQueues: localQueues, held: desc(metrics.HeldResources), seconds: desc(metrics.QuotaSeconds),
		ended: desc(metrics.EndedSeconds), began: desc(metrics.LedgerBegan), saved: desc(metrics.LedgerSaved),
		unsaved: desc(metrics.LedgerUnsaved),
	}
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.held, c.seconds, c.ended, c.began, c.saved, c.unsaved} {
		descs <- d
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	if unsaved, tries := c.ledger.unsaved(); tries {
		out <- prometheus.MustNewConstMetric(c.unsaved, prometheus.GaugeValue, unsaved.Seconds())
	}
	account, leads := c.ledger.tell(c.localQueues)
	if !leads {
		return
	}
	tell := func(d *prometheus.Desc, kind prometheus.ValueType, values map[slot]float64) {
		for s, value := range values {
			out <- prometheus.MustNewConstMetric(d, kind, value, s.values(s.is)...)
		}
	}
	tell(c.held, prometheus.GaugeValue, account.holds)
	tell(c.seconds, prometheus.CounterValue, account.held)
	tell(c.ended, prometheus.CounterValue, account.ended)
	for d, at := range map[*prometheus.Desc]time.Time{c.began: account.began, c.saved: account.saved} {
		if !at.IsZero() {
			out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(at.UnixMilli())/1000)
		}
	}
}

// withoutLocalQueues puts LocalQueues together where there are no labels of them.
func withoutLocalQueues(values map[slot]float64) map[slot]float64 {
	sums := map[slot]float64{}
	for s, value := range values {
		s.Namespace, s.LocalQueue = "", ""
		sums[s] += value
	}
	return sums
}

// account is what is told.
type account struct {
	// holds is what is held now, held and ended what was by phase and by outcome.
	holds, held, ended map[slot]float64
	began, saved       time.Time
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
	now := account{holds: l.book.Holds(), began: l.book.began, saved: l.saved}
	now.held, now.ended = l.book.Totals(l.options.Clock.Now().Add(-settled))
	merged := l.book.merged
	if !localQueues {
		now.holds, now.held, now.ended = withoutLocalQueues(now.holds), withoutLocalQueues(now.held), withoutLocalQueues(now.ended)
		merged = withoutLocalQueues(ofOtherUsers(merged))
	}
	without(merged, now.held, now.ended)
	now.complete()
	neverBack(l.told.held, now.held)
	neverBack(l.told.ended, now.ended)
	l.told = now
	return now, true
}

// without takes from totals what came from series that were put together: it was told as theirs.
func without(merged map[slot]float64, totals ...map[slot]float64) {
	for _, of := range totals {
		for s, seconds := range merged {
			if _, ok := of[s]; ok {
				of[s] = max(0, of[s]-seconds)
			}
		}
	}
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
		return l.options.Clock.Since(l.failing), true
	}
	return 0, l.book != nil
}

// complete has every series that held something begin at 0 in all phases and outcomes: to
// Prometheus, a counter that appears with a value has not grown by that.
func (a account) complete() {
	series := map[Series]bool{}
	for _, of := range []map[slot]float64{a.holds, a.held} {
		for s := range of {
			series[s.Series] = true
		}
	}
	for s := range series {
		for _, phase := range []string{metrics.PhaseWaiting, metrics.PhaseRunning, metrics.PhaseStopping} {
			a.held[slot{s, phase}] += 0
		}
		for _, outcome := range []string{metrics.OutcomeUseful, metrics.OutcomeLost, metrics.OutcomeFailed, metrics.OutcomeDeleted} {
			a.ended[slot{s, outcome}] += 0
		}
	}
}

// neverBack keeps counters from going behind what this process has told before: Prometheus takes
// that for a reset. It may be that an object tells late that a phase ended earlier.
func neverBack(told, now map[slot]float64) {
	for s, value := range told {
		now[s] = max(now[s], value)
	}
}
