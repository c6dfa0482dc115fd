// SPDX-License-Identifier: Apache-2.0

package submit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/explain"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/follow"
)

// calm is the time between two looks at the least: every look lists what jobs compete for.
const calm = time.Second

// follower watches a TrainJob until it runs.
type follower struct {
	client      client.WithWatch
	out, errOut io.Writer
	job         client.ObjectKey
}

// follow shows how far the TrainJob comes. It ends when its pods run, with an error when
// they will not, and with another one when ctx ends.
func (f *follower) follow(ctx context.Context) error {
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	d := newDisplay(f.out, time.Now())
	runs := false
	err := follow.Each(watching, follow.Watch(watching, calm).Add(f.client, follow.Job(f.job)...), f.errOut, f.look, func(facts *explain.Facts) (over bool, err error) {
		p := progressOf(facts)
		d.show(p, time.Now())
		if p.failure != "" {
			return true, exit.With(exit.Findings, fmt.Errorf("TrainJob %s does not run: %s; see kubectl trainjob explain -n %s %s", f.job, p.failure, f.job.Namespace, f.job.Name))
		}
		runs = p.running()
		return runs, nil
	})
	if err == nil && !runs {
		return fmt.Errorf("stopped watching; TrainJob %s stays and goes on: see kubectl trainjob explain -n %s %s", f.job, f.job.Namespace, f.job.Name)
	}
	return err
}

// look reads what there is; nil where the TrainJob is gone.
func (f *follower) look(ctx context.Context) (*explain.Facts, error) {
	job, err := cluster.TrainJob(ctx, f.client, f.job.Namespace, f.job.Name)
	if errors.Is(err, cluster.ErrNoTrainJob) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return explain.Read(ctx, f.client, job)
}

// step is one on the way to running; detail says more of one that is done.
type step struct{ name, detail string }

// progress is how far a TrainJob has come.
type progress struct {
	steps []step
	// reached is how many steps are done.
	reached int
	// holds is why the next one is not done, reason in one word; waits is set where that takes longer than a moment.
	holds, reason string
	waits         bool
	// failure is why it will not run; empty as long as it may.
	failure string
}

// running reports whether there is nothing more to wait for.
func (p progress) running() bool { return p.reached == len(p.steps) }

// reached is how many steps of a job in a queue are done; a job that has failed stays where it was.
var reached = map[explain.Phase]int{
	explain.Unqueued: 1, explain.Held: 1, explain.Waiting: 2, explain.Stopping: 2, explain.Deactivated: 2,
	explain.Reserved: 3, explain.Starting: 4, explain.Elsewhere: 5, explain.Running: 5, explain.Succeeded: 5,
}

// waiting are the phases that last.
var waiting = []explain.Phase{explain.Waiting, explain.Reserved, explain.Stopping, explain.Held}

// progressOf tells how far a TrainJob has come; nil is one that is gone.
func progressOf(f *explain.Facts) progress {
	if f == nil {
		return progress{steps: []step{{name: "submitted"}, {name: "pods running"}}, reached: 1, failure: "it was deleted"}
	}
	s := explain.StateOf(f)
	p := progress{steps: []step{{"submitted", "trainjob " + f.Job.Namespace + "/" + f.Job.Name}}, holds: s.Message, reason: s.Reason,
		waits: s.Stuck || slices.Contains(waiting, s.Phase) && s.Reason != explain.Evaluating}
	if local, clusterQueue := f.Queues(); local != "" && s.Phase != explain.NotManaged {
		p.steps = append(p.steps, step{"queued", named("LocalQueue", local)}, step{"quota reserved", named("ClusterQueue", clusterQueue)},
			step{"admitted", named("flavor", strings.Join(f.Assigned(), ", "))})
	}
	last := step{"pods running", s.Message}
	if cluster.ForMultiKueue(f.Job) {
		last.name = "in a worker"
	}
	p.steps = append(p.steps, last)
	p.reached = min(reached[s.Phase], len(p.steps))
	switch {
	case s.Phase == explain.Failed || s.Phase == explain.Deactivated:
		p.failure = "it " + s.Message
	case (s.Phase == explain.NotManaged || s.Reason == explain.Unseen) && f.AllRun():
		p.reached = len(p.steps)
	case s.Phase == explain.NotManaged:
		p.reached = 1
	}
	return p
}

// named is "LocalQueue gpus"; empty where there is no name to be seen.
func named(kind, name string) string {
	if name == "" {
		return ""
	}
	return kind + " " + name
}
