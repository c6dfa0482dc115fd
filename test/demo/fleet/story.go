// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/test/attempt"
	"github.com/kueue-trainer/kueue-trainer/test/demo/internal/play"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

const (
	// stepLimit is how long one step may take: a lost worker counts as lost after ten seconds here.
	stepLimit = 2 * time.Minute
	lookEvery = 300 * time.Millisecond
)

var jobs = []string{"bert", "llama", "resnet"}

// story is what was seen so far.
type story struct {
	manager site
	workers []site
	out     *os.File
	start   time.Time

	// states are what the manager cluster says of each job, places where its pods run.
	states map[string]string
	places map[string][]place
	// dead is the worker that was killed.
	dead string
}

// place is where a pod of a job runs, or ran.
type place struct {
	worker, node string
	pod          types.UID
}

// tellStory sets the stage and plays the story.
func tellStory(ctx context.Context, fleet *world.Fleet, out *os.File) error {
	s := &story{out: out, states: map[string]string{}, places: map[string][]place{}}
	return attempt.To(func() {
		s.set(ctx, fleet)
		fmt.Fprintf(s.out, `
Cluster manager holds the queue of a team and has no nodes; worker1 and worker2 have %s GPUs of
quota each. Three TrainJobs want 8 GPUs each, which is more than one worker has. Nodes and pods are
fake (kwok), everything else is real, once in each cluster. Seconds, TrainJob, what happens:

`, gpusOfWorker)
		s.start = time.Now()
		for _, name := range jobs {
			s.manager.Make(ctx, s.manager.Job(name).GPUs("8").Obj())
		}
		s.await(ctx, "all three run, in both workers", func() bool { return s.haveRun() == len(jobs) && s.spread() })
		lost := s.kill(ctx)
		s.await(ctx, lost+" has left the dead worker and waits", func() bool { return s.states[lost] == "waits for a worker" })
		// The other worker is full.
		s.survivor().Finish(ctx, s.someOther(lost), "succeeded")
		s.await(ctx, lost+" runs in the other worker", func() bool { return s.now(lost).worker == s.survivor().Cluster.Name })
		for _, name := range jobs {
			s.survivor().Finish(ctx, name, "succeeded")
		}
		s.await(ctx, "all are complete", s.allComplete)
		s.verify(ctx, lost)
	})
}

// set makes the team's queue in every cluster, in the manager's last: it sends jobs to the others.
func (s *story) set(ctx context.Context, fleet *world.Fleet) {
	for _, worker := range fleet.Workers {
		s.workers = append(s.workers, open(ctx, worker, gpusOfWorker))
	}
	s.manager = open(ctx, fleet.Manager, "64", check)
	ctx, cancel := context.WithTimeout(ctx, stepLimit)
	defer cancel()
	for _, at := range append(s.workers, s.manager) {
		at.EventuallyIs(ctx, &kueue.LocalQueue{}, "queue", world.True(kueue.LocalQueueActive))
	}
}

// kill stops the API server of the worker with one job, and returns that.
func (s *story) kill(ctx context.Context) (lost string) {
	in := map[string][]string{}
	for _, name := range jobs {
		in[s.now(name).worker] = append(in[s.now(name).worker], name)
	}
	for _, worker := range s.workers {
		if name := worker.Cluster.Name; len(in[name]) == 1 {
			s.dead = name
			s.tell("", "the API server of %s dies", name)
			attempt.Succeed(worker.Cluster.Control(ctx, "kill", "kube-apiserver", io.Discard))
			return in[name][0]
		}
	}
	attempt.Fail("no worker has one job: %v", in)
	return ""
}

// await looks at the clusters until something is true, and tells what changes.
func (s *story) await(ctx context.Context, what string, is func() bool) {
	err := wait.PollUntilContextTimeout(ctx, lookEvery, stepLimit, true, func(ctx context.Context) (bool, error) {
		err := attempt.To(func() { s.look(ctx) })
		return err == nil && is(), err
	})
	if wait.Interrupted(err) {
		err = fmt.Errorf("this did not come true: %s; the jobs: %v, their places: %v", what, s.states, s.places)
	}
	attempt.Succeed(err)
}

// look asks the clusters, and tells what is new.
func (s *story) look(ctx context.Context) {
	states := s.manager.states(ctx)
	for _, name := range slices.Sorted(maps.Keys(states)) {
		if states[name] != s.states[name] {
			s.tell(name, "%s", states[name])
		}
	}
	s.states = states
	if slices.ContainsFunc(jobs, func(name string) bool { return states[name] == trainer.TrainJobFailed }) {
		attempt.Fail("a TrainJob failed")
	}
	for _, worker := range s.workers {
		if worker.Cluster.Name == s.dead {
			continue
		}
		running := worker.running(ctx)
		for _, name := range slices.Sorted(maps.Keys(running)) {
			if at := running[name]; s.now(name) != at {
				s.places[name] = append(s.places[name], at)
				s.tell(name, "runs on node %s of %s", at.node, at.worker)
			}
		}
	}
}

// now is where a job has run last.
func (s *story) now(job string) place {
	if places := s.places[job]; len(places) > 0 {
		return places[len(places)-1]
	}
	return place{}
}

func (s *story) haveRun() int {
	return len(slices.DeleteFunc(slices.Clone(jobs), func(name string) bool { return s.now(name) == place{} }))
}

// spread reports whether both workers have jobs.
func (s *story) spread() bool {
	return slices.ContainsFunc(jobs, func(name string) bool { return s.now(name).worker != s.now(jobs[0]).worker })
}

func (s *story) survivor() site {
	return s.workers[slices.IndexFunc(s.workers, func(w site) bool { return w.Cluster.Name != s.dead })]
}

func (s *story) someOther(job string) string {
	return jobs[slices.IndexFunc(jobs, func(name string) bool { return name != job })]
}

func (s *story) allComplete() bool {
	return !slices.ContainsFunc(jobs, func(name string) bool { return s.states[name] != trainer.TrainJobComplete })
}

// tell prints one event.
func (s *story) tell(job, format string, args ...any) {
	fmt.Fprintf(s.out, "%6.1fs  %-8s%s\n", time.Since(s.start).Seconds(), job, fmt.Sprintf(format, args...))
}

// verify checks what the story claims, on what was seen of it.
func (s *story) verify(ctx context.Context, lost string) {
	here := s.manager.pods(ctx)
	others := slices.DeleteFunc(slices.Clone(jobs), func(name string) bool { return name == lost })
	places := s.places[lost]
	claim := func(is bool, format string, args ...any) play.Claim {
		return play.Claim{Text: fmt.Sprintf(format, args...), Check: func() error {
			if !is {
				return fmt.Errorf("their places: %v", s.places)
			}
			return nil
		}}
	}
	attempt.Succeed(play.Verify(s.out, show.Painter(s.out), "\nChecked on what the clusters have shown:",
		claim(!slices.ContainsFunc(others, func(name string) bool { return len(s.places[name]) != 1 || s.now(name).worker == s.dead }),
			"the other jobs ran once, in %s", s.survivor().Cluster.Name),
		claim(len(places) == 2 && places[0].worker == s.dead && places[1].worker == s.survivor().Cluster.Name,
			"%s ran in %s first, and in %s when that was lost", lost, s.dead, s.survivor().Cluster.Name),
		claim(len(here) == 0, "there is no pod in the manager cluster")))
}
