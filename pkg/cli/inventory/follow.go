// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
)

// together is how long changes are collected before they are told: one admission is
// several writes.
const together = 300 * time.Millisecond

// Follow watches what could be listed for seen and tells of the inventory again after
// changes, until ctx ends or changed fails. The API server is asked for nothing else.
func Follow(ctx context.Context, config *rest.Config, seen *Inventory, changed func(context.Context, *Inventory) error) error {
	scheme, err := cluster.Scheme()
	if err != nil {
		return err
	}
	watched, err := cache.New(config, cache.Options{Scheme: scheme, DefaultTransform: cache.TransformStripManagedFields()})
	if err != nil {
		return fmt.Errorf("setting up watches: %w", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return watched.Start(ctx) })
	group.Go(func() error {
		changes, err := watchKinds(ctx, watched, seen)
		if err != nil {
			return err
		}
		return tell(ctx, watched, changes, seen.Unseen, changed)
	})
	return group.Wait()
}

// watchKinds returns a channel that has something to read when an object was added, changed
// or deleted.
func watchKinds(ctx context.Context, watched cache.Cache, seen *Inventory) (<-chan struct{}, error) {
	changes := make(chan struct{}, 1)
	note := func() {
		select {
		case changes <- struct{}{}:
		default: // somebody is going to look anyway
		}
	}
	for kind, obj := range kinds() {
		if !seen.Saw(kind) {
			continue
		}
		informer, err := watched.GetInformer(ctx, obj)
		if err != nil {
			return nil, fmt.Errorf("watching %s: %w", kind, err)
		}
		if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { note() }, UpdateFunc: func(any, any) { note() }, DeleteFunc: func(any) { note() },
		}); err != nil {
			return nil, fmt.Errorf("watching %s: %w", kind, err)
		}
	}
	return changes, nil
}

func tell(ctx context.Context, watched client.Reader, changes <-chan struct{}, unseen []Unseen, changed func(context.Context, *Inventory) error) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changes:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(together):
		}
		i, err := load(ctx, watched, unseen)
		if err != nil {
			return err
		}
		if err := changed(ctx, i); err != nil {
			return err
		}
	}
}

// kinds are those that load lists, as Unseen names them.
func kinds() map[string]client.Object {
	return map[string]client.Object{
		"nodes":                          &corev1.Node{},
		"pods":                           &corev1.Pod{},
		"resourceflavors.kueue.x-k8s.io": &kueue.ResourceFlavor{},
		"topologies.kueue.x-k8s.io":      &kueue.Topology{},
		"clusterqueues.kueue.x-k8s.io":   &kueue.ClusterQueue{},
		"cohorts.kueue.x-k8s.io":         &kueue.Cohort{},
		"localqueues.kueue.x-k8s.io":     &kueue.LocalQueue{},
		"admissionchecks.kueue.x-k8s.io": &kueue.AdmissionCheck{},
		"workloads.kueue.x-k8s.io":       &kueue.Workload{},
	}
}
