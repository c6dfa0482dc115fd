// SPDX-License-Identifier: Apache-2.0

// Package follow tells of the objects of a cluster as they come, change and go.
package follow

import (
	"context"
	"fmt"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// Start tells of every version of objects of some kinds until ctx ends, of several kinds at the same
// time: those of one namespace, or all where that is empty. It returns when it knows what is there
// already. Informers begin again where a watch breaks off.
func Start(ctx context.Context, cluster *world.Cluster, namespace string, tell func(obj client.Object, deleted bool), kinds ...client.Object) error {
	objects, err := cache.New(cluster.Config, cache.Options{
		Scheme: cluster.Client.Scheme(), DefaultNamespaces: map[string]cache.Config{namespace: {}}, DefaultTransform: cache.TransformStripManagedFields(),
	})
	if err != nil {
		return err
	}
	handler := toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { tell(obj.(client.Object), false) },
		UpdateFunc: func(_, obj any) { tell(obj.(client.Object), false) },
		DeleteFunc: func(obj any) {
			if unseen, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
				obj = unseen.Obj
			}
			tell(obj.(client.Object), true)
		},
	}
	go objects.Start(ctx) //nolint:errcheck // it waits for the end of ctx, and fails where it is started twice
	for _, kind := range kinds {
		informer, err := objects.GetInformer(ctx, kind)
		if err == nil {
			_, err = informer.AddEventHandler(handler)
		}
		if err != nil {
			return fmt.Errorf("watching %T: %w", kind, err)
		}
	}
	return nil
}
