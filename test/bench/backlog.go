// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/attempt"
	"github.com/kueue-trainer/kueue-trainer/test/bench/internal/work"
)

// Backlog is a manager that starts again in a cluster where many TrainJobs run and many more
// wait.
type Backlog struct {
	Column  string `json:"column"`
	Running int    `json:"running"`
	Waiting int    `json:"waiting"`
	// Before is what components used, and asked for, until all of them ran or waited.
	Before Used `json:"before"`
	// ReadyS is from the start of the process until it says that it is ready.
	ReadyS float64 `json:"readySeconds"`
	// Used and Requests are those of the new process, until all is quiet.
	Used     Used    `json:"used"`
	Requests []Count `json:"requests"`
}

// backlog fills a queue for some TrainJobs with many more, and starts the manager again.
func (b *bench) backlog(ctx context.Context, c column, running, waiting int) error {
	return b.onCluster(ctx, c, jobsNamespace, func(s *site) {
		found := &Backlog{Column: c.name, Running: running, Waiting: waiting}
		s.fill(ctx, running, waiting)
		w := s.open()
		found.Before = w.before
		found.ReadyS = s.startAgain(ctx, c)
		_, found.Requests = w.close(ctx)
		// All of it is of a process that did not exist before.
		found.Used = s.used()
		b.results.Backlogs = append(b.results.Backlogs, found)
		manager := c.manager()
		b.say("%-10s start with %d running and %d waiting: ready after %.1f s, %.0f MiB (%.0f before), CPU %.1f s, %.0f writes", c.name, running, waiting,
			found.ReadyS, found.Used[manager].PeakMiB, found.Before[manager].PeakMiB, found.Used[manager].CPUSeconds,
			perJob(found.Requests, 1, []string{manager}, stored))
	})
}

// fill makes so many TrainJobs run, and so many wait.
func (s *site) fill(ctx context.Context, running, waiting int) {
	cq := &kueue.ClusterQueue{}
	attempt.Succeed(s.Client.Get(ctx, client.ObjectKey{Name: work.Queue}, cq))
	cq.Spec.ResourceGroups[0].Flavors[0].Resources[0].NominalQuota = *resource.NewQuantity(int64(running), resource.DecimalSI)
	attempt.Succeed(s.Client.Update(ctx, cq), "setting the quota of ClusterQueue %s", work.Queue)
	s.create(ctx, 0, running+waiting, creators)
	s.all(ctx, running, bound)
	s.suspended(ctx, running+waiting)
	s.settled(ctx)
}

// startAgain returns after how many seconds the integration was ready.
func (s *site) startAgain(ctx context.Context, c column) float64 {
	manager := c.manager()
	attempt.Succeed(s.Control(ctx, "stop", manager, io.Discard))
	from := time.Now()
	attempt.Succeed(s.Control(ctx, "start", manager, io.Discard))
	took := time.Since(from).Seconds()
	s.pids = attempt.Must(s.PIDs())
	// It is ready before it has looked at all jobs, and a look writes nothing that we would see.
	s.until(ctx, "a manager at rest", s.atRest(manager))
	return took
}

// atRest reports whether a component has used little CPU since it was asked before.
func (s *site) atRest(component string) func() (bool, error) {
	const share = 0.05
	var last float64
	var asked time.Time
	var rested []bool
	return func() (bool, error) {
		if time.Since(asked) < time.Second {
			return false, nil
		}
		all := s.used()
		used, took := all[component].CPUSeconds-last, time.Since(asked).Seconds()
		last, asked = all[component].CPUSeconds, time.Now()
		rested = append(rested, used < share*took)
		return len(rested) > 5 && !slices.Contains(rested[len(rested)-5:], false), nil
	}
}
