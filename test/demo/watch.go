// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/attempt"
	"github.com/kueue-trainer/kueue-trainer/test/follow"
)

// sighting is one event of a watch, and when it came.
type sighting struct {
	at      time.Time
	obj     client.Object
	deleted bool
}

// follow starts the watches. It comes before the first object is created.
func (s *stage) follow(ctx context.Context) {
	tell := func(obj client.Object, deleted bool) {
		select {
		case s.sightings <- sighting{time.Now(), obj, deleted}:
		case <-ctx.Done():
		}
	}
	attempt.Succeed(follow.Start(ctx, s.cluster, "", tell, &trainer.TrainJob{}, &kueue.Workload{}, &corev1.Pod{}, &kueue.ClusterQueue{}))
}

// observe notes what a watch showed, and tells of it.
func (s *stage) observe(seen sighting) {
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
}
