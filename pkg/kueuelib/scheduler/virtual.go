// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// virtualClock stands still until it is set, and has its timers ask for the time at which they fire.
type virtualClock struct {
	*testingclock.FakeClock
	timers []timer
}

type timer struct {
	at   time.Time
	fire func()
}

// AfterFunc keeps f until the clock is set to its time. Nobody stops such a timer of Kueue's.
func (c *virtualClock) AfterFunc(d time.Duration, f func()) clock.Timer {
	c.timers = append(c.timers, timer{c.Now().Add(d), f})
	return nil
}

func (c *virtualClock) set(now time.Time) {
	c.SetTime(now)
	due := c.timers
	c.timers = nil
	for _, t := range due {
		if t.at.After(now) {
			c.timers = append(c.timers, t)
		} else {
			t.fire()
		}
	}
}

// cycleClock is the clock of the scheduler alone, which asks it for the time right before and right after it
// has waited for heads of queues.
type cycleClock struct {
	clock.Clock
	// asked is counted by Kueue's workers, too, which preempt beside each other.
	asked atomic.Int32
}

func (c *cycleClock) Now() time.Time {
	c.asked.Add(1)
	return c.Clock.Now()
}

// noHeads reports whether a cycle has found nobody to look at.
func (c *cycleClock) noHeads() bool { return c.asked.Load() == 1 }

// cycleContext is done only while the scheduler waits for heads, which then does not block. A context that is done
// all along would have Kueue preempt nobody.
type cycleContext struct {
	context.Context
	clock *cycleClock
}

var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

func (c *cycleContext) Done() <-chan struct{} {
	if c.clock.noHeads() {
		return closed
	}
	return nil
}

// memory is the client of Kueue's scheduler: it holds Workloads and LocalQueues, takes statuses, and
// keeps what a cycle changed.
type memory struct {
	client.Client
	sync.Mutex
	workloads map[client.ObjectKey]*kueue.Workload
	queues    []kueue.LocalQueue
	written   []write
	// requeued are who was looked at in vain in this cycle.
	requeued []client.ObjectKey
}

// write is one of a status.
type write struct{ before, after *kueue.Workload }

func (m *memory) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	switch into := into.(type) {
	case *kueue.Workload:
		m.Lock()
		defer m.Unlock()
		if wl := m.workloads[key]; wl != nil {
			m.requeued = append(m.requeued, key)
			wl.DeepCopyInto(into)
			return nil
		}
	case *kueue.LocalQueue:
		for n := range m.queues {
			if lq := &m.queues[n]; lq.Namespace == key.Namespace && lq.Name == key.Name {
				lq.DeepCopyInto(into)
				return nil
			}
		}
	case *corev1.Namespace:
		into.Name = key.Name
		return nil
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.String())
}

// List finds nothing: neither LimitRanges nor Workloads that were there before their queue.
func (m *memory) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

func (m *memory) Status() client.SubResourceWriter { return statusWriter{memory: m} }

type statusWriter struct {
	client.SubResourceWriter
	memory *memory
}

// Patch takes the status that Kueue applies: it has all fields that Kueue owns.
func (s statusWriter) Patch(_ context.Context, obj client.Object, _ client.Patch, _ ...client.SubResourcePatchOption) error {
	applied, ok := obj.(*kueue.Workload)
	if !ok {
		return fmt.Errorf("Kueue's scheduler writes a %T", obj)
	}
	s.memory.Lock()
	defer s.memory.Unlock()
	before := s.memory.workloads[client.ObjectKeyFromObject(applied)]
	if before == nil {
		return apierrors.NewNotFound(schema.GroupResource{}, applied.Name)
	}
	after := *before
	applied.Status.DeepCopyInto(&after.Status)
	after.Status.ReclaimablePods = before.Status.ReclaimablePods
	s.memory.put(before, &after)
	after.DeepCopyInto(applied)
	return nil
}

// put takes a status with its times in whole seconds, as an API server does: who got quota in the same second is preempted
// in the order of UIDs.
func (m *memory) put(before, after *kueue.Workload) {
	for n := range after.Status.Conditions {
		changed := &after.Status.Conditions[n].LastTransitionTime
		changed.Time = changed.Truncate(time.Second)
	}
	m.workloads[client.ObjectKeyFromObject(after)] = after
	m.written = append(m.written, write{before, after})
}
