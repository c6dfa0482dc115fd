// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/kueue-trainer/kueue-trainer/test/attempt"
	"github.com/kueue-trainer/kueue-trainer/test/kit/logs"
)

// window is a span of time in which everything is counted.
type window struct {
	from     time.Time
	seconds  float64
	used     map[string]usage
	looks    float64
	requests logs.Counts
}

// count does something, waits until nothing changes any more, and returns what was used and asked for meanwhile.
func (s *site) count(ctx context.Context, do func()) *window {
	// What was asked before does not count.
	attempt.Must(s.Log.Count(s.Namespace))
	before, looks := s.used(), s.looks(ctx)
	w := &window{from: time.Now()}
	do()
	w.seconds = time.Since(w.from).Seconds()
	s.settled(ctx)
	w.used, w.looks = s.used(), s.looks(ctx)-looks
	for name, u := range w.used {
		u.cpuSeconds -= before[name].cpuSeconds
		w.used[name] = u
	}
	w.requests = attempt.Must(s.Log.Count(s.Namespace))
	return w
}

// and is this window with the reconciles and requests of another.
func (w *window) and(other *window) *window {
	both := &window{looks: w.looks + other.looks, requests: maps.Clone(w.requests)}
	for request, count := range other.requests {
		both.requests[request] += count
	}
	return both
}

// cpu adds up the milliseconds of components.
func (w *window) cpu(components ...string) float64 {
	sum := 0.0
	for _, name := range components {
		sum += 1000 * w.used[name].cpuSeconds
	}
	return sum
}

// asked counts requests of Kueue and the manager that are of a kind.
func (w *window) asked(is func(logs.Request) bool) float64 {
	n := 0
	for request, count := range w.requests {
		if integrates(request.User) && is(request) {
			n += count
		}
	}
	return float64(n)
}

// integrates reports whether a component has a part in putting TrainJobs under quotas.
func integrates(component string) bool { return component == "kueue" || component == "kueue-trainer" }

// The kinds of requests. Events are written by whoever sees something, and kept for an hour.
func stored(r logs.Request) bool { return r.Write() && !r.DryRun && r.Resource != "events" }
func dryRun(r logs.Request) bool { return r.DryRun }
func read(r logs.Request) bool   { return !r.Write() }
func anything(logs.Request) bool { return true }
func wasted(r logs.Request) bool { return stored(r) && r.Outcome != logs.Done }
func managers(r logs.Request) bool {
	return r.User == "kueue-trainer" && r.Resource != "events"
}

// looks returns how many times kueue-trainer has reconciled a TrainJob; Kueue has no such integration.
func (s *site) looks(ctx context.Context) float64 {
	if s.manager != ours.manager {
		return 0
	}
	status, page, err := s.Cluster.AskManager(ctx, "metrics", "/metrics", s.token)
	attempt.Succeed(err)
	if status != http.StatusOK {
		attempt.Fail("the metrics of %s: %d: %s", s.manager, status, page)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(page))
	attempt.Succeed(err)
	return reconciles(families["controller_runtime_reconcile_total"])
}

// reconciles adds up those of TrainJobs.
func reconciles(family *dto.MetricFamily) float64 {
	sum := 0.0
	for _, series := range family.GetMetric() {
		for _, label := range series.GetLabel() {
			if label.GetName() == "controller" && strings.HasPrefix(label.GetValue(), "trainjob") {
				sum += series.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// name says a kind of request as a row has it.
func name(r logs.Request) string {
	out := r.Verb + " " + r.Resource
	if r.DryRun {
		out += ", dry run"
	}
	if r.Outcome != logs.Done {
		out += fmt.Sprintf(", %s", r.Outcome)
	}
	return out
}
