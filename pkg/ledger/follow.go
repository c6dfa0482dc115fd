// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// OfTrainJob reports whether a Workload is that of a TrainJob.
func OfTrainJob(wl *kueue.Workload) bool { return state.ControllerOfKind(wl, trainjob.GVK) != nil }

// concerns reports whether a Workload is that of a TrainJob, or was: who orphans it takes its owner, not its quota.
func (b *Book) concerns(wl *kueue.Workload) bool { return OfTrainJob(wl) || b.open[wl.UID] != nil }

// Follow has the ledger take note of every version of a Workload that the cache sees.
func (l *Ledger) Follow(ctx context.Context, caches cache.Informers) error {
	informer, err := caches.GetInformer(ctx, &kueue.Workload{})
	if err != nil {
		return fmt.Errorf("caching Workloads: %w", err)
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { l.look(ctx, obj.(*kueue.Workload)) },
		UpdateFunc: func(_, obj any) { l.look(ctx, obj.(*kueue.Workload)) },
		DeleteFunc: func(obj any) {
			if last, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
				obj = last.Obj
			}
			if wl, ok := obj.(*kueue.Workload); ok {
				l.look(ctx, wl)
				l.gone(wl.UID)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("following Workloads: %w", err)
	}
	return nil
}

// Look has the ledger take note of what else than a Workload has changed, such as its Jobs.
func (l *Ledger) Look(ctx context.Context, workloads []*kueue.Workload) {
	for _, wl := range workloads {
		l.look(ctx, wl)
	}
}

// look takes note of a version of a Workload that the book does not know.
func (l *Ledger) look(ctx context.Context, wl *kueue.Workload) {
	if !l.concerns(wl) {
		return
	}
	is := noted{wl.ResourceVersion, l.options.Facts(ctx, wl)}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.book == nil || l.noted[wl.UID] == is || !l.book.closed[wl.UID].Gone.IsZero() {
		return
	}
	l.noted[wl.UID] = is
	if l.book.observeEnd(Read(wl, is.facts), time.Now()) {
		l.want()
	}
}

// concerns reports whether there is a book that has to know of a Workload: what there is before, is read when there is one.
func (l *Ledger) concerns(wl *kueue.Workload) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.book != nil && l.book.concerns(wl)
}

func (l *Ledger) gone(uid types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.book != nil {
		now := time.Now()
		l.book.Gone(uid, now, now)
	}
	delete(l.noted, uid)
	delete(l.left, uid)
}

// Leave takes note that no pod is left of a Workload that is about to be gone: then nothing tells any more when
// its quota was given back, unless it is saved that it was there until now.
func (l *Ledger) Leave(uid types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.left == nil || !l.left[uid].IsZero() {
		return
	}
	l.left[uid] = time.Now()
	if l.book != nil && l.book.open[uid] != nil {
		l.book.changes++
		l.want()
	}
}
