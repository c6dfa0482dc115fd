// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/forecast"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib/scheduler"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/pages"
)

// Forecast is what it takes to tell when the last job of a queue starts. No cluster is asked.
type Forecast struct {
	Workloads int `json:"workloads"`
	// Teams are as many queues of one cohort; one stands for a queue without preemption.
	Teams int `json:"teams"`
	// Futures is how many were played in drawFor.
	Futures int `json:"futures"`
}

const (
	drawFor = 5 * time.Second
	// fewFutures is how many a forecast has at least to be told as a band.
	fewFutures = 20
)

// seconds is how long so many futures take; a dash where none was done in time.
func (f *Forecast) seconds(futures int) string {
	if f.Futures == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", drawFor.Seconds()*float64(futures)/float64(f.Futures))
}

func forecastTable(forecasts []*Forecast) string {
	if len(forecasts) == 0 {
		return ""
	}
	rows := [][]string{{
		"forecast of one job in", "Workloads", fmt.Sprintf("futures in %.0f s", drawFor.Seconds()), "one future, s", fmt.Sprintf("%d futures, s", fewFutures),
	}}
	for _, f := range forecasts {
		rows = append(rows, []string{f.where(), strconv.Itoa(f.Workloads), strconv.Itoa(f.Futures), f.seconds(1), f.seconds(fewFutures)})
	}
	return "\n" + pages.Table(rows...)
}

func (f *Forecast) where() string {
	if f.Teams == 1 {
		return "a queue"
	}
	return fmt.Sprintf("%d queues that preempt", f.Teams)
}

// forecasts draws futures of as many teams with these numbers of Workloads.
func (b *bench) forecasts(ctx context.Context, teams int, sizes ...int) error {
	for _, n := range sizes {
		q := crowded(teams, n)
		q.Until = []client.ObjectKey{client.ObjectKeyFromObject(q.Entrants[n-1].Workload)}
		futures, err := forecast.Draw(ctx, q)
		if err != nil {
			return fmt.Errorf("%d Workloads: %w", n, err)
		}
		b.results.Forecasts = append(b.results.Forecasts, &Forecast{Workloads: n, Teams: teams, Futures: futures.Drawn})
		say("forecast, %d teams, %5d Workloads: %4d futures in %s", teams, n, futures.Drawn, drawFor)
	}
	return nil
}

// crowded is teams of one cohort who take back what they lent by preemption, or a team that preempts nobody. Half of
// the Workloads run, with all of the quota, and those who wait have three priorities.
func crowded(teams, workloads int) *forecast.Question {
	random := rand.New(rand.NewPCG(1, 0))
	runtimes := forecast.NewRuntimes(ranLike(random), 0)
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
		wl := waiting(fmt.Sprintf("job-%05d", n), team, random.Int32N(3), begin.Add(time.Duration(n-workloads)*time.Minute))
		subject := forecast.Subject{Traits: forecast.Traits{Queue: "all"}}
		if n < workloads/2 {
			kit.With(wl, kit.Admitted, kit.Assigned(team, "h100"), kit.Since(begin.Add(-time.Hour)))
			subject.Running = time.Hour
		}
		q.Entrants = append(q.Entrants, forecast.Entrant{Workload: wl, Running: runtimes.Of(subject)})
	}
	return q
}

func ranLike(random *rand.Rand) []forecast.Past {
	past := make([]forecast.Past, 200)
	for n := range past {
		past[n].Traits = forecast.Traits{Queue: "all"}
		past[n].Ran = forecast.Ran{For: time.Duration(1+random.IntN(600)) * time.Minute, Ended: true}
	}
	return past
}

func waiting(name, queue string, priority int32, created time.Time) *kueue.Workload {
	return &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(created)},
		Spec: kueue.WorkloadSpec{
			QueueName: kueue.LocalQueueName(queue), Priority: &priority, PodSets: []kueue.PodSet{kit.PodSet("node", 1, string(kit.GPU), "1")},
		},
	}
}
