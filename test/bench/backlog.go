// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
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
	return b.onCluster(ctx, c, jobsNamespace, func(s *site) error {
		found := &Backlog{Column: c.name, Running: running, Waiting: waiting}
		if err := s.fill(ctx, running, waiting); err != nil {
			return err
		}
		w, err := s.open()
		if err != nil {
			return err
		}
		found.Before = w.before
		if found.ReadyS, err = s.startAgain(ctx, c); err != nil {
			return err
		}
		if _, found.Requests, err = w.close(ctx); err != nil {
			return err
		}
		// All of it is of a process that did not exist before.
		if found.Used, err = s.used(); err != nil {
			return err
		}
		b.results.Backlogs = append(b.results.Backlogs, found)
		manager := c.manager()
		b.say("%-10s start with %d running and %d waiting: ready after %.1f s, %.0f MiB (%.0f before), CPU %.1f s, %.0f writes", c.name, running, waiting,
			found.ReadyS, found.Used[manager].PeakMiB, found.Before[manager].PeakMiB, found.Used[manager].CPUSeconds,
			perJob(found.Requests, 1, []string{manager}, stored))
		return nil
	})
}

// fill makes so many TrainJobs run, and so many wait.
func (s *site) fill(ctx context.Context, running, waiting int) error {
	cq := &kueue.ClusterQueue{}
	if err := s.Client.Get(ctx, client.ObjectKey{Name: queue}, cq); err != nil {
		return err
	}
	cq.Spec.ResourceGroups[0].Flavors[0].Resources[0].NominalQuota = *resource.NewQuantity(int64(running), resource.DecimalSI)
	if err := s.Client.Update(ctx, cq); err != nil {
		return fmt.Errorf("setting the quota of ClusterQueue %s: %w", queue, err)
	}
	if err := s.create(ctx, 0, running+waiting, creators); err != nil {
		return err
	}
	if err := s.all(ctx, running, bound); err != nil {
		return err
	}
	if err := s.suspended(ctx, running+waiting); err != nil {
		return err
	}
	return s.settled(ctx)
}

// startAgain returns after how many seconds the integration was ready.
func (s *site) startAgain(ctx context.Context, c column) (float64, error) {
	manager := c.manager()
	if err := s.Control(ctx, "stop", manager, io.Discard); err != nil {
		return 0, err
	}
	from := time.Now()
	if err := s.Control(ctx, "start", manager, io.Discard); err != nil {
		return 0, err
	}
	took := time.Since(from).Seconds()
	var err error
	if s.pids, err = s.PIDs(); err != nil {
		return 0, err
	}
	// It is ready before it has looked at all jobs, and a look writes nothing that we would see.
	return took, s.until(ctx, "a manager at rest", s.atRest(manager))
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
		all, err := s.used()
		used, took := all[component].CPUSeconds-last, time.Since(asked).Seconds()
		last, asked = all[component].CPUSeconds, time.Now()
		rested = append(rested, used < share*took)
		return len(rested) > 5 && !slices.Contains(rested[len(rested)-5:], false), err
	}
}
