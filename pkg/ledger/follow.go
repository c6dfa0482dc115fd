// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// OfTrainJob reports whether a Workload is that of a TrainJob.
func OfTrainJob(wl *kueue.Workload) bool {
	owner := metav1.GetControllerOfNoCopy(wl)
	if owner == nil || owner.Kind != trainjob.GVK.Kind {
		return false
	}
	gv, err := schema.ParseGroupVersion(owner.APIVersion)
	return err == nil && gv.Group == trainjob.GVK.Group
}

// Follow has the ledger take note of every version of a Workload that the cache sees.
func (l *Ledger) Follow(ctx context.Context, caches cache.Informers) error {
	informer, err := caches.GetInformer(ctx, &kueue.Workload{})
	if err != nil {
		return fmt.Errorf("caching Workloads: %w", err)
	}
	observe := func(obj any) {
		if wl, ok := obj.(*kueue.Workload); ok {
			l.look(ctx, wl)
		}
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    observe,
		UpdateFunc: func(_, obj any) { observe(obj) },
		DeleteFunc: func(obj any) {
			if last, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
				obj = last.Obj
			}
			if wl, ok := obj.(*kueue.Workload); ok {
				observe(wl)
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
func (l *Ledger) Look(ctx context.Context, workloads []kueue.Workload) {
	for i := range workloads {
		l.look(ctx, &workloads[i])
	}
}

// look takes note of a Workload of a TrainJob, also of one that was: who orphans it takes its owner, not its quota.
func (l *Ledger) look(ctx context.Context, wl *kueue.Workload) {
	if OfTrainJob(wl) || l.holds(wl.UID) {
		l.observe(ctx, wl)
	}
}
