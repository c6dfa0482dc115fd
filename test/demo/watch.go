// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// sighting is one event of a watch, and when it came.
type sighting struct {
	at      time.Time
	obj     client.Object
	deleted bool
	// err is set when a watch broke: what came after it would be missed.
	err error
}

// follow starts the watches. It comes before the first object is created.
func (s *stage) follow(ctx context.Context) error {
	for _, list := range []client.ObjectList{
		&trainer.TrainJobList{}, &kueue.WorkloadList{}, &corev1.PodList{}, &kueue.ClusterQueueList{},
	} {
		w, err := s.client.Watch(ctx, list)
		if err != nil {
			return fmt.Errorf("watching %T: %w", list, err)
		}
		go s.forward(ctx, w, fmt.Sprintf("%T", list))
	}
	return nil
}

func (s *stage) forward(ctx context.Context, w watch.Interface, what string) {
	defer w.Stop()
	for event := range w.ResultChan() {
		seen := sighting{at: time.Now(), deleted: event.Type == watch.Deleted}
		if event.Type == watch.Error {
			seen.err = fmt.Errorf("watch of %s: %w", what, apierrors.FromObject(event.Object))
		} else {
			seen.obj, _ = event.Object.(client.Object)
		}
		s.send(ctx, seen)
	}
	s.send(ctx, sighting{at: time.Now(), err: fmt.Errorf("the API server ended the watch of %s", what)})
}

func (s *stage) send(ctx context.Context, seen sighting) {
	select {
	case s.sightings <- seen:
	case <-ctx.Done():
	}
}

// observe notes what a watch showed, and tells of it.
func (s *stage) observe(seen sighting) error {
	if seen.err != nil {
		return seen.err
	}
	switch obj := seen.obj.(type) {
	case *trainer.TrainJob:
		s.onTrainJob(seen, obj)
	case *kueue.Workload:
		s.onWorkload(seen, obj)
	case *corev1.Pod:
		s.onPod(seen, obj)
	case *kueue.ClusterQueue:
		s.queue = obj
	}
	return nil
}
