// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/scheduler/flavorassigner"
	"sigs.k8s.io/kueue/pkg/workload"
)

// look is what Kueue's scheduler found out about one Workload in one cycle.
type look struct {
	key   client.ObjectKey
	queue kueue.ClusterQueueReference
	// cohort is the topmost one; empty for a ClusterQueue that shares with none.
	cohort string
	// status is "assumed" of one that was admitted, "skipped" of one that another was before, and mostly empty.
	status, message string
	assignment      flavorassigner.Assignment
	targets         []klog.ObjectRef
}

// cycleLog takes the looks of a cycle, in Kueue's order, off the log of its scheduler: there is no other place where that tells the
// order, and assignments that are no admissions yet.
type cycleLog struct {
	memory *memory
	looks  *[]*look
	values []any
}

var _ logr.LogSink = cycleLog{}

func (c cycleLog) Init(logr.RuntimeInfo)        {}
func (c cycleLog) Enabled(level int) bool       { return level <= 4 }
func (c cycleLog) Error(error, string, ...any)  {}
func (c cycleLog) WithName(string) logr.LogSink { return c }
func (c cycleLog) WithValues(values ...any) logr.LogSink {
	return cycleLog{c.memory, c.looks, slices.Concat(c.values, values)}
}

func (c cycleLog) Info(_ int, message string, values ...any) {
	switch message {
	case "Attempting to schedule workload":
		key := keyOf(value[klog.ObjectRef](c.values, "workload"))
		if workload.HasQuotaReservation(c.memory.workloads[key]) {
			return // It comes a second time, for its topology.
		}
		*c.looks = append(*c.looks, &look{
			key: key, cohort: value[klog.ObjectRef](c.values, "rootCohort").Name,
			queue: kueue.ClusterQueueReference(value[klog.ObjectRef](c.values, "clusterQueue").Name),
		})
	case "Workload evaluated for admission":
		key := keyOf(value[klog.ObjectRef](values, "workload"))
		if n := slices.IndexFunc(*c.looks, func(l *look) bool { return l.key == key }); n >= 0 {
			at := (*c.looks)[n]
			at.status, at.message = fmt.Sprint(value[any](values, "status")), value[string](values, "reason")
			at.assignment = value[flavorassigner.Assignment](values, "nominatedAssignment")
			at.targets = value[[]klog.ObjectRef](values, "preempted")
		}
	}
}

func value[T any](values []any, name string) (last T) {
	for n := 0; n+1 < len(values); n += 2 {
		if v, ok := values[n+1].(T); ok && values[n] == name {
			last = v
		}
	}
	return last
}

func keyOf(ref klog.ObjectRef) client.ObjectKey {
	return client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}
}

// sharing names the ClusterQueues that share quota with its own.
func (l *look) sharing() string { return cmp.Or(l.cohort, "ClusterQueue "+string(l.queue)) }

func (l *look) admits() bool { return l.status == "assumed" }

// preempted are who is stopped for it.
func (l *look) preempted() []klog.ObjectRef {
	if l.status == "" {
		return l.targets
	}
	return nil
}

// isSkipped reports whether others before it in the cycle took what it had found.
func (l *look) isSkipped() bool {
	return l.status == "skipped" || l.assignment.RepresentativeMode() == flavorassigner.DeferredFit
}

// takes reports whether those behind it in the cycle cannot have what it has found.
func (l *look) takes() bool { return l.assignment.RepresentativeMode() != flavorassigner.NoFit }
