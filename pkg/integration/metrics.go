// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
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
		err = followQueues(ctx, queues, labels)
	}
	metrics.Registry.MustRegister(kueuelib.JobMetrics()...)
	return labels, err
}

// followQueues has the labels of metrics take their values from the queues that they are of.
func followQueues(ctx context.Context, queues cache.Informers, labels *kueuelib.CustomLabels) error {
	clusterQueues, err := queues.GetInformer(ctx, &kueue.ClusterQueue{})
	if err != nil {
		return fmt.Errorf("caching ClusterQueues: %w", err)
	}
	localQueues, err := queues.GetInformer(ctx, &kueue.LocalQueue{})
	if err != nil {
		return fmt.Errorf("caching LocalQueues: %w", err)
	}
	if _, err := clusterQueues.AddEventHandler(onStored(func(cq *kueue.ClusterQueue) { kueuelib.StoreClusterQueue(labels, cq) })); err != nil {
		return err
	}
	_, err = localQueues.AddEventHandler(onStored(func(lq *kueue.LocalQueue) { kueuelib.StoreLocalQueue(labels, lq) }))
	return err
}

// onStored has do called with what a cache stores. What is gone keeps its values: they are few,
// and a Workload may yet name it.
func onStored[T any](do func(T)) toolscache.ResourceEventHandler {
	stored := func(obj any) {
		if known, ok := obj.(T); ok {
			do(known)
		}
	}
	return toolscache.ResourceEventHandlerFuncs{AddFunc: stored, UpdateFunc: func(_, obj any) { stored(obj) }}
}
