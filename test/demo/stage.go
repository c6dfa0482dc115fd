// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/test/attempt"
	"github.com/kueue-trainer/kueue-trainer/test/demo/internal/play"
	"github.com/kueue-trainer/kueue-trainer/test/follow"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// stage is where the story is played: it holds what the watches have shown so far. Only
// the goroutine that awaits the story's steps reads and writes it.
type stage struct {
	play.Story
	cluster   *world.Cluster
	sightings chan sighting

	// jobs in the order of their first sight.
	jobs  []*record
	told  map[string]bool
	nodes map[string]corev1.Node
	queue *kueue.ClusterQueue
	// made is what the story made, besides the jobs.
	made []client.Object
}

// sighting is one event of a watch, and when it came.
type sighting struct {
	at      time.Time
	obj     client.Object
	deleted bool
}

func newStage(cluster *world.Cluster, out *os.File) *stage {
	s := &stage{cluster: cluster, sightings: make(chan sighting, 1000), told: map[string]bool{}, nodes: map[string]corev1.Node{}}
	s.Story = play.Story{Out: out, Paint: show.Painter(out), StepLimit: 90 * time.Second, NameWidth: 14, Next: s.next, State: s.state}
	return s
}

// job returns the record of a TrainJob, a new one at its first sight.
func (s *stage) job(team, name string) *record {
	for _, r := range s.jobs {
		if r.team == team && r.name == name {
			return r
		}
	}
	r := &record{team: team, name: name}
	s.jobs = append(s.jobs, r)
	return r
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

// next notes what a watch shows, and tells of it.
func (s *stage) next(ctx context.Context) error {
	select {
	case <-ctx.Done():
	case seen := <-s.sightings:
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
	// The story has no room for such an end.
	for _, r := range s.jobs {
		if r.failure != "" {
			return fmt.Errorf("TrainJob %s failed: %s", r, r.failure)
		}
	}
	return nil
}

// tell tells of a job, each thing once.
func (s *stage) tell(at time.Time, r *record, colour func(string) string, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if key := r.String() + text; !s.told[key] {
		s.told[key] = true
		s.Tell(at, r.String(), colour, "%s", text)
	}
}

func (s *stage) state() string {
	var b strings.Builder
	for _, r := range s.jobs {
		fmt.Fprintf(&b, "\n  %-15s %s", r, r.state())
	}
	return b.String()
}
