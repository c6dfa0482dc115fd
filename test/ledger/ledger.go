// SPDX-License-Identifier: Apache-2.0

// Package ledger watches whether the pods of queued TrainJobs stay within the quota that
// their jobs are charged for: Kueue counts Workloads, and the truth is the pods.
package ledger

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/kueue-trainer/kueue-trainer/test/record"
)

// namespaced and clusterWide are the kinds that say who runs, who is charged and for what.
var (
	namespaced = []schema.GroupVersionResource{
		{Version: "v1", Resource: "pods"},
		{Group: "batch", Version: "v1", Resource: "jobs"},
		{Group: "jobset.x-k8s.io", Version: "v1alpha2", Resource: "jobsets"},
		{Group: "trainer.kubeflow.org", Version: "v1alpha1", Resource: "trainjobs"},
		{Group: "kueue.x-k8s.io", Version: "v1beta2", Resource: "workloads"},
		{Group: "kueue.x-k8s.io", Version: "v1beta2", Resource: "localqueues"},
	}
	clusterWide = []schema.GroupVersionResource{
		{Group: "kueue.x-k8s.io", Version: "v1beta2", Resource: "clusterqueues"},
		{Group: "kueue.x-k8s.io", Version: "v1beta2", Resource: "cohorts"},
		{Group: "kueue.x-k8s.io", Version: "v1beta2", Resource: "resourceflavors"},
		{Version: "v1", Resource: "nodes"},
	}
)

// Kinds returns what has to be recorded for a check of some namespaces.
func Kinds(namespaces ...string) []record.Kind {
	var kinds []record.Kind
	for _, gvr := range clusterWide {
		kinds = append(kinds, record.Kind{GroupVersionResource: gvr})
	}
	for _, namespace := range namespaces {
		for _, gvr := range namespaced {
			kinds = append(kinds, record.Kind{GroupVersionResource: gvr, Namespace: namespace})
		}
	}
	return kinds
}

// Ledger records what goes on in some namespaces.
type Ledger struct {
	recorder *record.Recorder
	cancel   context.CancelFunc

	mu      sync.Mutex
	entries []entry
	err     error
}

// Watch records until Close.
func Watch(ctx context.Context, api dynamic.Interface, namespaces ...string) (*Ledger, error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	l := &Ledger{cancel: cancel}
	var err error
	if l.recorder, err = record.Start(ctx, api, Kinds(namespaces...), l.take); err != nil {
		cancel()
		return nil, err
	}
	return l, nil
}

// take keeps what matters of a version.
func (l *Ledger) take(v record.Version) {
	e, err := read(v)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil && l.err == nil {
		l.err = err
	}
	l.entries = append(l.entries, e)
}

// CaughtUp reports, by an error, whether a version is still on its way.
func (l *Ledger) CaughtUp(ctx context.Context) error { return l.recorder.CaughtUp(ctx) }

// Close ends the watches.
func (l *Ledger) Close() { l.cancel() }

// Check returns what was found up to now.
func (l *Ledger) Check(want Expectation) (Result, error) {
	want.Gaps = append(want.Gaps, l.recorder.Gaps()...)
	l.mu.Lock()
	defer l.mu.Unlock()
	return check(l.entries, want), l.err
}
