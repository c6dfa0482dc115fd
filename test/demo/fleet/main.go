// SPDX-License-Identifier: Apache-2.0

// Command fleet plays what several clusters are for, on three local control planes of its own: TrainJobs of one queue
// spread over two workers, one worker dies, and its job comes back in the other. It prints what the API servers show as
// it happens, checks that the story came true, and takes the clusters down.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/test/attempt"
	"github.com/kueue-trainer/kueue-trainer/test/demo/internal/play"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// storyLimit ends a story that hangs; on an idle machine it takes about a minute.
const storyLimit = 8 * time.Minute

func main() {
	play.Main(play.Own{
		Dir: ".fleet-demo", Logs: "*/logs",
		Settings: map[string]string{"NODES": "8", "FLEET_MANAGER": "external", "FLEET_WORKERS": "external,external"},
		Play: func(ctx context.Context, dir string) error {
			fleet, err := world.StartFleet(ctx, dir, os.Stdout)
			if err != nil {
				return err
			}
			return play.Play(ctx, storyLimit, func(ctx context.Context) { newStory(os.Stdout).play(ctx, fleet) })
		},
		Down: func(ctx context.Context, dir string) error { return world.DownFleet(ctx, dir, os.Stdout) },
	}.Run)
}

const (
	// check is the AdmissionCheck of the fleet, which sends jobs to the workers.
	check = "workers"
	// gpusOfWorker is the quota of each worker: two jobs of the story.
	gpusOfWorker = "16"
)

// site is the team's namespace and queue in a cluster of the fleet. What fails ends the story.
type site struct{ *world.World }

// open makes them. Nothing runs in the manager cluster, whose quota has checks in place of a pool.
func open(ctx context.Context, cluster *world.Cluster, gpus string, checks ...string) site {
	s := site{world.New(ctx, attempt.Gomega(), io.Discard, cluster, "team", "demo")}
	s.Pool(ctx, s.Flavor("h100", map[string]string{kit.ProductLabel: kit.H100}), gpus, checks...)
	return s
}

// state is how far the manager cluster says that a TrainJob is, in a few words.
func (s site) state(ctx context.Context, name string) string {
	job, wl := s.TrainJob(ctx, name), s.Workload(ctx, name)
	for _, ended := range []string{trainer.TrainJobComplete, trainer.TrainJobFailed} {
		if apimeta.IsStatusConditionTrue(job.Status.Conditions, ended) {
			return ended
		}
	}
	if wl == nil {
		return "waits for Kueue"
	}
	worker := ptr.Deref(wl.Status.ClusterName, "")
	switch {
	case worker == "":
		return "waits for a worker"
	case apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadAdmitted):
		return "in " + worker
	}
	return "on its way to " + worker
}

func (s site) running(ctx context.Context, name string) (at place, runs bool) {
	for _, pod := range s.Pods(ctx, name) {
		if pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil {
			return place{s.Cluster.Name, pod.Spec.NodeName, pod.UID}, true
		}
	}
	return place{}, false
}

const lookEvery = 300 * time.Millisecond

var jobs = []string{"bert", "llama", "resnet"}

type story struct {
	play.Story
	manager site
	workers []site

	// states are what the manager cluster says of each job, places where its pods run.
	states map[string]string
	places map[string][]place
	dead   string
}

type place struct {
	worker, node string
	pod          types.UID
}

func newStory(out *os.File) *story {
	s := &story{states: map[string]string{}, places: map[string][]place{}}
	// A lost worker counts as lost after ten seconds here.
	s.Story = play.Story{Out: out, Paint: show.Painter(out), StepLimit: 2 * time.Minute, NameWidth: 6, Next: s.next, State: s.state}
	return s
}

func (s *story) play(ctx context.Context, fleet *world.Fleet) {
	s.set(ctx, fleet)
	fmt.Fprintf(s.Out, `
Cluster manager holds the queue of a team and has no nodes; worker1 and worker2 have %s GPUs of
quota each. Three TrainJobs want 8 GPUs each, which is more than one worker has. Nodes and pods are
fake (kwok), everything else is real, once in each cluster. Seconds, TrainJob, what happens:

`, gpusOfWorker)
	s.Start = time.Now()
	for _, name := range jobs {
		s.manager.Make(ctx, s.manager.Job(name).GPUs("8").Obj())
	}
	s.Await(ctx, s.claim("all three run, in both workers", s.spread))
	lost := s.kill(ctx)
	s.Await(ctx, s.claim(lost+" has left the dead worker and waits", func() bool { return s.states[lost] == "waits for a worker" }))
	// The other worker is full.
	s.survivor().Finish(ctx, others(lost)[0], "succeeded")
	s.Await(ctx, s.claim(lost+" runs in the other worker", func() bool { return s.now(lost).worker == s.survivor().Cluster.Name }))
	for _, name := range jobs {
		s.survivor().Finish(ctx, name, "succeeded")
	}
	s.Await(ctx, s.claim("all are complete", s.allComplete))
	s.verify(ctx, lost)
}

// set makes the team's queue in every cluster, in the manager's last: it sends jobs to the others.
func (s *story) set(ctx context.Context, fleet *world.Fleet) {
	for _, worker := range fleet.Workers {
		s.workers = append(s.workers, open(ctx, worker, gpusOfWorker))
	}
	s.manager = open(ctx, fleet.Manager, "64", check)
	ctx, cancel := context.WithTimeout(ctx, s.StepLimit)
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

// next looks at the clusters, after a pause.
func (s *story) next(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(lookEvery):
		return attempt.To(func() { s.look(ctx) })
	}
}

func (s *story) state() string {
	return fmt.Sprintf(" the jobs: %v, their places: %v", s.states, s.places)
}

func (s *story) claim(text string, is func() bool) play.Claim {
	return play.Claim{Text: text, Check: func() error {
		if !is() {
			return fmt.Errorf("their places: %v", s.places)
		}
		return nil
	}}
}

func (s *story) look(ctx context.Context) {
	for _, name := range jobs {
		if state := s.manager.state(ctx, name); state != s.states[name] {
			s.states[name] = state
			s.tell(name, "%s", state)
		}
		if s.states[name] == trainer.TrainJobFailed {
			attempt.Fail("a TrainJob failed")
		}
		for _, worker := range s.workers {
			if worker.Cluster.Name == s.dead {
				continue
			}
			if at, runs := worker.running(ctx, name); runs && at != s.now(name) {
				s.places[name] = append(s.places[name], at)
				s.tell(name, "runs on node %s of %s", at.node, at.worker)
			}
		}
	}
}

func (s *story) now(job string) place {
	if places := s.places[job]; len(places) > 0 {
		return places[len(places)-1]
	}
	return place{}
}

func (s *story) spread() bool {
	workers := sets.New[string]()
	for _, name := range jobs {
		workers.Insert(s.now(name).worker)
	}
	return len(workers) == len(s.workers) && !workers.Has("")
}

func (s *story) survivor() site {
	return s.workers[slices.IndexFunc(s.workers, func(w site) bool { return w.Cluster.Name != s.dead })]
}

func others(job string) []string {
	return slices.DeleteFunc(slices.Clone(jobs), func(name string) bool { return name == job })
}

func (s *story) allComplete() bool {
	return !slices.ContainsFunc(jobs, func(name string) bool { return s.states[name] != trainer.TrainJobComplete })
}

func (s *story) tell(job, format string, args ...any) {
	s.Tell(time.Now(), job, play.Plain, format, args...)
}

// verify checks what the story claims, on what was seen of it.
func (s *story) verify(ctx context.Context, lost string) {
	survivor := s.survivor().Cluster.Name
	fmt.Fprintln(s.Out)
	s.Verify(
		s.claim("the other jobs ran once, in "+survivor, func() bool {
			return !slices.ContainsFunc(others(lost), func(name string) bool { return len(s.places[name]) != 1 || s.now(name).worker == s.dead })
		}),
		s.claim(fmt.Sprintf("%s ran in %s first, and in %s when that was lost", lost, s.dead, survivor), func() bool {
			places := s.places[lost]
			return len(places) == 2 && places[0].worker == s.dead && places[1].worker == survivor
		}),
		s.claim("there is no pod in the manager cluster", func() bool {
			return len(attempt.Must(s.manager.Names(ctx, &corev1.PodList{}))) == 0
		}))
}
