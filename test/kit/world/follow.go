// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Follow shows note every version of the world's objects of a kind, one at a time, until stop, which
// fails where the watch has ended before: then not every version was seen. What note fills may be read
// in reading.
func Follow[T client.Object](
	ctx context.Context, w *World, list client.ObjectList, note func(T),
) (reading func(func()), stop func()) {
	// The context of a spec ends before what cleans up after it.
	watching, err := w.Cluster.Client.Watch(context.WithoutCancel(ctx), list, client.InNamespace(w.Namespace))
	w.g.Expect(err).NotTo(gomega.HaveOccurred())
	var lock sync.Mutex
	reading = func(read func()) {
		lock.Lock()
		defer lock.Unlock()
		read()
	}
	var broke, stopped atomic.Bool
	go func() {
		// To stop it may look like an error of the connection.
		defer func() { broke.Store(!stopped.Load()) }()
		for event := range watching.ResultChan() {
			obj, ok := event.Object.(T)
			if !ok {
				return
			}
			reading(func() { note(obj) })
		}
	}()
	return reading, func() {
		stopped.Store(true)
		watching.Stop()
		w.g.Expect(broke.Load()).To(gomega.BeFalse(), "the watch of %T ended before it was stopped", list)
	}
}
