// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/forecast"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib/scheduler"
	"github.com/kueue-trainer/kueue-trainer/test/attempt"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
)

// drawFor is how long futures are drawn; a forecast has 20 at least to be told as a band.
const drawFor = 5 * time.Second

// forecasts draws futures of teams with these numbers of Workloads, of which the last one is asked for, without a cluster.
func (b *bench) forecasts(ctx context.Context, teams int, sizes ...int) {
	of := section{b.results.section(fmt.Sprintf("Forecast of one job: futures in %.0f s", drawFor.Seconds())), ours.title}
	for _, n := range sizes {
		q := crowded(teams, n)
		q.Until = []client.ObjectKey{client.ObjectKeyFromObject(q.Entrants[n-1].Workload)}
		futures, err := forecast.Draw(ctx, q)
		attempt.Succeed(err, "%d Workloads", n)
		where := "a queue"
		if teams > 1 {
			where = fmt.Sprintf("%d queues that preempt", teams)
		}
		of.add(fmt.Sprintf("%s, %d Workloads", where, n), float64(futures.Drawn))
		say("forecast, %d teams, %5d Workloads: %4d futures in %s", teams, n, futures.Drawn, drawFor)
	}
}

// crowded is teams of one cohort who take back what they lent by preemption, or a team that preempts nobody. Half of
// the Workloads run, with all of the quota, and those who wait have three priorities.
func crowded(teams, workloads int) *forecast.Question {
	random := rand.New(rand.NewPCG(1, 0))
	past := make([]forecast.Past, 200)
	for n := range past {
		past[n].Traits = forecast.Traits{Queue: "all"}
		past[n].Ran = forecast.Ran{For: time.Duration(1+random.IntN(600)) * time.Minute, Ended: true}
	}
	runtimes := forecast.NewRuntimes(past, 0)
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	q := &forecast.Question{
		World:    &scheduler.World{Flavors: []kueue.ResourceFlavor{{ObjectMeta: metav1.ObjectMeta{Name: "h100"}}}},
		Runtimes: runtimes, Settings: forecast.Settings{Begin: begin, Horizon: 14 * 24 * time.Hour, Stopping: 30 * time.Second},
		Futures: math.MaxInt32, Time: drawFor, Seed: 1,
	}
	for n := range teams {
		name := fmt.Sprintf("team-%d", n)
		cq := kit.ClusterQueue(name, kit.Quota{Flavor: "h100", GPUs: fmt.Sprint(workloads / 2 / teams)})
		cq.Spec.QueueingStrategy = kueue.BestEffortFIFO // What an API server makes of none.
		if teams == 1 {
			cq.Spec.Preemption = nil
		} else {
			cq.Spec.CohortName, cq.Spec.Preemption.ReclaimWithinCohort = "all", kueue.PreemptionPolicyAny
		}
		q.World.ClusterQueues = append(q.World.ClusterQueues, *cq)
		q.World.LocalQueues = append(q.World.LocalQueues, *kit.LocalQueue("team", name, name))
	}
	for n := range workloads {
		team := fmt.Sprintf("team-%d", n%teams)
		created := begin.Add(time.Duration(n-workloads) * time.Minute)
		wl := kit.Workload("team", fmt.Sprintf("job-%05d", n), team, created, kit.PodSet("node", 1, string(kit.GPU), "1"))
		*wl.Spec.Priority = random.Int32N(3)
		subject := forecast.Subject{Traits: forecast.Traits{Queue: "all"}}
		if n < workloads/2 {
			kit.With(wl, kit.Admitted, kit.Assigned(team, "h100"), kit.Since(begin.Add(-time.Hour)))
			subject.Running = time.Hour
		}
		q.Entrants = append(q.Entrants, forecast.Entrant{Workload: wl, Running: runtimes.Of(subject)})
	}
	return q
}
