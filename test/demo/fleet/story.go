// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
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
	out     io.Writer
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

func newStory(fleet *world.Fleet, out io.Writer) *story {
	return &story{
		manager: site{fleet.Manager, "manager"},
		workers: []site{{fleet.Workers[0], "worker1"}, {fleet.Workers[1], "worker2"}},
		out:     out, states: map[string]string{}, places: map[string][]place{},
	}
}

// play sets the stage and plays the story.
func (s *story) play(ctx context.Context) error {
	if err := s.set(ctx); err != nil {
		return err
	}
	fmt.Fprintf(s.out, `
Cluster manager holds the queue of a team and has no nodes; worker1 and worker2 have %s GPUs of
quota each. Three TrainJobs want 8 GPUs each, which is more than one worker has. Nodes and pods are
fake (kwok), everything else is real, once in each cluster. Seconds, TrainJob, what happens:

`, gpusOfWorker)
	s.start = time.Now()
	for _, name := range jobs {
		job := kit.TrainJob(team, name).Queue(queue).GPUs("8").Obj()
		if err := s.manager.Client.Create(ctx, job); err != nil {
			return fmt.Errorf("submitting TrainJob %s: %w", name, err)
		}
	}
	if err := s.await(ctx, "all three run, in both workers", func() bool { return s.haveRun() == len(jobs) && s.spread() }); err != nil {
		return err
	}
	lost, err := s.kill(ctx)
	if err != nil {
		return err
	}
	if err := s.await(ctx, lost+" has left the dead worker and waits", func() bool { return s.states[lost] == "waits for a worker" }); err != nil {
		return err
	}
	// The other worker is full.
	done := s.someOther(lost)
	if err := s.survivor().finish(ctx, done); err != nil {
		return err
	}
	if err := s.await(ctx, lost+" runs in the other worker", func() bool { return s.now(lost).worker == s.survivor().name }); err != nil {
		return err
	}
	for _, name := range jobs {
		if err := s.survivor().finish(ctx, name); err != nil {
			return err
		}
	}
	if err := s.await(ctx, "all are complete", s.allComplete); err != nil {
		return err
	}
	return s.verify(ctx, lost)
}

// set makes the team's queue in every cluster, in the manager's last: it sends jobs to the others.
func (s *story) set(ctx context.Context) error {
	for _, worker := range s.workers {
		if err := worker.open(ctx, gpusOfWorker); err != nil {
			return err
		}
	}
	if err := s.manager.open(ctx, "64", check); err != nil {
		return err
	}
	return wait.PollUntilContextTimeout(ctx, lookEvery, stepLimit, true, func(ctx context.Context) (bool, error) {
		for _, at := range append(s.workers, s.manager) {
			if open, err := at.isOpen(ctx); err != nil || !open {
				return false, err
			}
		}
		return true, nil
	})
}

// kill stops the API server of the worker with one job, and returns that.
func (s *story) kill(ctx context.Context) (lost string, err error) {
	in := map[string][]string{}
	for _, name := range jobs {
		in[s.now(name).worker] = append(in[s.now(name).worker], name)
	}
	for _, worker := range s.workers {
		if len(in[worker.name]) == 1 {
			lost, s.dead = in[worker.name][0], worker.name
			s.tell("", "the API server of %s dies", worker.name)
			return lost, worker.Control(ctx, "kill", "kube-apiserver", io.Discard)
		}
	}
	return "", fmt.Errorf("no worker has one job: %v", in)
}

// await looks at the clusters until something is true, and tells what changes.
func (s *story) await(ctx context.Context, what string, is func() bool) error {
	err := wait.PollUntilContextTimeout(ctx, lookEvery, stepLimit, true, func(ctx context.Context) (bool, error) {
		err := s.look(ctx)
		return err == nil && is(), err
	})
	if wait.Interrupted(err) {
		return fmt.Errorf("this did not come true: %s; the jobs: %v, their places: %v", what, s.states, s.places)
	}
	return err
}

// look asks the clusters, and tells what is new.
func (s *story) look(ctx context.Context) error {
	states, err := s.manager.states(ctx)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(states)) {
		if states[name] != s.states[name] {
			s.tell(name, "%s", states[name])
		}
	}
	s.states = states
	if failed := slices.ContainsFunc(jobs, func(name string) bool { return states[name] == trainer.TrainJobFailed }); failed {
		return errors.New("a TrainJob failed")
	}
	for _, worker := range s.workers {
		if worker.name == s.dead {
			continue
		}
		running, err := worker.running(ctx)
		if err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(running)) {
			if at := running[name]; s.now(name) != at {
				s.places[name] = append(s.places[name], at)
				s.tell(name, "runs on node %s of %s", at.node, at.worker)
			}
		}
	}
	return nil
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
	return s.workers[slices.IndexFunc(s.workers, func(w site) bool { return w.name != s.dead })]
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
func (s *story) verify(ctx context.Context, lost string) error {
	here, err := s.manager.pods(ctx)
	if err != nil {
		return err
	}
	others := slices.DeleteFunc(slices.Clone(jobs), func(name string) bool { return name == lost })
	fmt.Fprintln(s.out, "\nChecked on what the clusters have shown:")
	var untrue []string
	for _, claim := range []struct {
		text string
		is   bool
	}{
		{"the other jobs ran once, in " + s.survivor().name, !slices.ContainsFunc(others, func(name string) bool {
			return len(s.places[name]) != 1 || s.now(name).worker == s.dead
		})},
		{fmt.Sprintf("%s ran in %s first, and in %s when that was lost", lost, s.dead, s.survivor().name),
			len(s.places[lost]) == 2 && s.places[lost][0].worker == s.dead && s.now(lost).worker == s.survivor().name},
		{"there is no pod in the manager cluster", len(here) == 0},
	} {
		mark := "true  "
		if !claim.is {
			mark, untrue = "UNTRUE", append(untrue, claim.text)
		}
		fmt.Fprintf(s.out, "  %s  %s\n", mark, claim.text)
	}
	if len(untrue) > 0 {
		return fmt.Errorf("the story did not come true: %s", strings.Join(untrue, "; "))
	}
	return nil
}
