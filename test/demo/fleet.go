// SPDX-License-Identifier: Apache-2.0

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
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// playFleet plays with three clusters: jobs of a queue spread over two workers, one dies, and its job comes back in the other.
func playFleet(ctx context.Context, dir string) {
	fleet := attempt.Must(world.StartFleet(ctx, dir, os.Stdout))
	s := &fleetStage{states: map[string]string{}, places: map[string][]place{}}
	s.teller = teller{paint: show.Painter(os.Stdout), width: 6, look: s.look}
	limited(ctx, func(ctx context.Context) { s.play(ctx, fleet) })
}

// gpusOfWorker is the quota of each worker: two jobs of the story.
const gpusOfWorker = "16"

// open makes the team's queue in a cluster. That of the manager, where nothing runs, has checks in place of a pool.
func open(ctx context.Context, cluster *world.Cluster, gpus string, checks ...string) site {
	s := newSite(ctx, cluster, "team")
	s.Pool(ctx, s.Flavor("h100", map[string]string{kit.ProductLabel: kit.H100}), gpus, checks...)
	return s
}

// state is how far the manager cluster says that a TrainJob is, in a few words.
func (s site) state(ctx context.Context, name string) string {
	job, wl := s.TrainJob(ctx, name), s.Workload(ctx, name)
	if complete(job) {
		return trainer.TrainJobComplete
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

func (s site) running(ctx context.Context, name string) (at place, is bool) {
	for _, pod := range s.Pods(ctx, name) {
		if runs(pod) {
			return place{s.Cluster.Name, pod.Spec.NodeName, pod.UID}, true
		}
	}
	return place{}, false
}

var jobs = []string{"bert", "llama", "resnet"}

type fleetStage struct {
	teller
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

func (s *fleetStage) play(ctx context.Context, fleet *world.Fleet) {
	s.set(ctx, fleet)
	fmt.Printf(`
Cluster manager holds the queue of a team and has no nodes; worker1 and worker2 have %s GPUs of
quota each. Three TrainJobs want 8 GPUs each, which is more than one worker has. Nodes and pods are
fake (kwok), everything else is real, once in each cluster. Seconds, TrainJob, what happens:

`, gpusOfWorker)
	s.start = time.Now()
	for _, name := range jobs {
		s.manager.Make(ctx, s.manager.Job(name).GPUs("8").Obj())
	}
	s.await(ctx, s.claim("all three run, in both workers", s.spread))
	lost := s.kill(ctx)
	s.await(ctx, s.claim(lost+" has left the dead worker and waits", func() bool { return s.states[lost] == "waits for a worker" }))
	// The other worker is full.
	s.survivor().Finish(ctx, others(lost)[0], "succeeded")
	s.await(ctx, s.claim(lost+" runs in the other worker", func() bool { return s.now(lost).worker == s.survivor().Cluster.Name }))
	for _, name := range jobs {
		s.survivor().Finish(ctx, name, "succeeded")
	}
	s.await(ctx, s.claim("all are complete", func() bool {
		return !slices.ContainsFunc(jobs, func(name string) bool { return s.states[name] != trainer.TrainJobComplete })
	}))
	s.check(ctx, lost)
}

// set makes the team's queue in every cluster, in the manager's last: it sends jobs to the others.
func (s *fleetStage) set(ctx context.Context, fleet *world.Fleet) {
	for _, worker := range fleet.Workers {
		s.workers = append(s.workers, open(ctx, worker, gpusOfWorker))
	}
	s.manager = open(ctx, fleet.Manager, "64", "workers") // The AdmissionCheck that sends jobs there.
	for _, at := range append(s.workers, s.manager) {
		at.ready(ctx)
	}
}

// kill stops the API server of the worker with one job, and returns that.
func (s *fleetStage) kill(ctx context.Context) (lost string) {
	in := map[string][]string{}
	for _, name := range jobs {
		in[s.now(name).worker] = append(in[s.now(name).worker], name)
	}
	for _, worker := range s.workers {
		if name := worker.Cluster.Name; len(in[name]) == 1 {
			s.dead = name
			s.say("", plain, "the API server of "+name+" dies")
			attempt.Succeed(worker.Cluster.Control(ctx, "kill", "kube-apiserver", io.Discard))
			return in[name][0]
		}
	}
	attempt.Fail("no worker has one job: %v", in)
	return ""
}

func (s *fleetStage) claim(text string, is func() bool) claim {
	return claim{text, is, func() string { return fmt.Sprintf("the jobs: %v, their places: %v", s.states, s.places) }}
}

func (s *fleetStage) look(ctx context.Context) {
	for _, name := range jobs {
		if state := s.manager.state(ctx, name); state != s.states[name] {
			s.states[name] = state
			s.say(name, plain, state)
		}
		for _, worker := range s.workers {
			if worker.Cluster.Name == s.dead {
				continue
			}
			if at, is := worker.running(ctx, name); is && at != s.now(name) {
				s.places[name] = append(s.places[name], at)
				s.say(name, plain, fmt.Sprintf("runs on node %s of %s", at.node, at.worker))
			}
		}
	}
}

func (s *fleetStage) now(job string) place {
	if places := s.places[job]; len(places) > 0 {
		return places[len(places)-1]
	}
	return place{}
}

func (s *fleetStage) spread() bool {
	workers := sets.New[string]()
	for _, name := range jobs {
		workers.Insert(s.now(name).worker)
	}
	return len(workers) == len(s.workers) && !workers.Has("")
}

func (s *fleetStage) survivor() site {
	return s.workers[slices.IndexFunc(s.workers, func(w site) bool { return w.Cluster.Name != s.dead })]
}

func others(job string) []string {
	return slices.DeleteFunc(slices.Clone(jobs), func(name string) bool { return name == job })
}

func (s *fleetStage) check(ctx context.Context, lost string) {
	survivor := s.survivor().Cluster.Name
	s.verify(
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
