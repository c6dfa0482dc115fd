// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/config/kueueconfig"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
)

// setupMetrics registers Kueue's metrics of jobs, which Kueue records, for other kinds, in its
// own process. They have the labels that Kueue's configuration gives them now; where that
// changes later they are those of this process's next start, as in Kueue.
func setupMetrics(ctx context.Context, queues cache.Informers, settings *kueueconfig.Settings) (*kueuelib.CustomLabels, error) {
	labels, err := kueuelib.NewCustomLabels(settings.CustomLabels)
	if err != nil {
		return nil, fmt.Errorf("giving Kueue's metrics the labels of its configuration: %w", err)
	}
	if labels != nil {
		err = followQueues(ctx, queues, func(queue client.Object) { kueuelib.StoreQueue(labels, queue) })
	}
	metrics.Registry.MustRegister(kueuelib.JobMetrics()...)
	return labels, err
}

// followQueues has store called with every version of a ClusterQueue or LocalQueue. What is
// stored of one that is gone stays: it is little, and a Workload may yet name it.
func followQueues(ctx context.Context, queues cache.Informers, store func(client.Object)) error {
	stored := func(obj any) {
		if queue, ok := obj.(client.Object); ok {
			store(queue)
		}
	}
	for _, kind := range []client.Object{&kueue.ClusterQueue{}, &kueue.LocalQueue{}} {
		informer, err := queues.GetInformer(ctx, kind)
		if err != nil {
			return fmt.Errorf("caching %T: %w", kind, err)
		}
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: stored, UpdateFunc: func(_, queue any) { stored(queue) },
		})
		if err != nil {
			return fmt.Errorf("following %T: %w", kind, err)
		}
	}
	return nil
}
